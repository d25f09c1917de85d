from __future__ import annotations

from ptopt.rules.base import Invalid, ModelRule


class FoundByModel(ModelRule):
    """A general model names a problem that the rules do not know.

    ## What it does
    Shows the change as a whole to a general model behind a server of your choice, if one is set up and its file from
    `training calibrate` allows it. Each claim of the model is put to it once more, with the file around the lines and the task to
    prove the claim wrong; what is left is shown with the model's words as a quotation.

    ## Why it is slow
    The comment says so in the model's words: a result that nobody uses, a model that is loaded for each request, samples that are
    decoded twice. Rules find a fixed list of problems; readers of real pull requests name others in every second comment.

    ## When this is wrong
    The model has misread the code. Only the place was checked: the lines were written by the change, or stand where it
    removed some. No rule stands behind the statement, and no fix was tried.

    ## Example
    ```python
    def predict(image):
        model = AutoModel.from_pretrained("facebook/dinov2-large").cuda()
        return model(image)
    ```

    ## Use instead
    ```python
    model = AutoModel.from_pretrained("facebook/dinov2-large").cuda()

    def predict(image):
        return model(image)
    ```

    ## Fix safety
    No fix is offered: the advice is part of the quotation.

    ## Sources
    - [A general model, without an adapter](https://github.com/ptopt/ptopt/blob/main/docs/training.md#a-general-model-without-an-adapter)
    """

    id = "PTO990"
    name = "found-by-model"
    family = "model"
    when_wrong = "the model has misread the code: of what it says only the place was checked"

    VALID = (
        """
        model = AutoModel.from_pretrained("facebook/dinov2-large").cuda()

        def predict(image):
            return model(image)
        """,
        """
        for images, labels in loader:
            if step % 100 == 0:
                grid = decoder(images)
                writer.add_image("samples", grid, step)
        """,
        """
        def __getitem__(self, index):
            return self.transform(read_image(self.paths[index]))
        """,
    )
    INVALID = (
        Invalid("""
            def predict(image):
                model = AutoModel.from_pretrained("facebook/dinov2-large").cuda()  # !
                return model(image)
        """),
        Invalid("""
            for images, labels in loader:
                grid = decoder(images)  # !
                if step % 100 == 0:
                    writer.add_image("samples", grid, step)
        """),
        Invalid("""
            def __getitem__(self, index):
                size = self.transform(read_image(self.paths[index])).shape  # !
                return self.transform(read_image(self.paths[index])), size
        """),
    )
