from __future__ import annotations

import re

from ptopt.rules.base import Invalid
from ptopt.rules.regressions._base import Regression


class ChannelsLastRemoved(Regression):
    """A change lays images out channel by channel again."""

    id = "PTO964"
    name = "channels-last-removed"
    most_stated = 0.5
    triggers = (".to(", ".cuda(", "contiguous")
    measure = re.compile(r"(\.to\()?memory_format\s*=\s*torch\.channels_last(_3d)?")
    still = re.compile(r"channels_last")
    work = re.compile(r"\.to\(|\.cuda\(|contiguous\(|model|conv")
    prior = 0.5
    message = (
        "Convolutions in reduced precision then convert the layout around each kernel. Keep "
        "`memory_format=torch.channels_last` on the model and its input."
    )
    why = "Tensor cores work on channels-last data; with the default layout cuDNN converts before and after."
    source = (
        "[PyTorch tutorial: channels last memory "
        "format](https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html)"
    )
    when_wrong = "the model is not convolutional, or runs in float32"

    VALID = (
        """
        model = model.to("cuda", memory_format=torch.channels_last)
        """,
        """
        def fetch(images):
            # - return images.to("cuda", memory_format=torch.channels_last)
            return images.cuda().contiguous(memory_format=torch.channels_last)
        """,
        """
        def fetch(images):
            # - return images.to("cuda", memory_format=torch.channels_last)
            return images
        """,
    )
    INVALID = (
        Invalid("""
            def fetch(images):
                # - return images.to("cuda", memory_format=torch.channels_last)
                return images.to("cuda")  # !
        """),
        Invalid("""
            def build(model):
                # - model = model.cuda().to(memory_format=torch.channels_last)
                return model.cuda()  # !
        """),
        Invalid("""
            def fetch(images):
                # - images = images.contiguous(memory_format=torch.channels_last)
                images = images.contiguous()  # !
                return images
        """),
    )
