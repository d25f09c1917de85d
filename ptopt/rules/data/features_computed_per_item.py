from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, Severity, SourceFile
from ptopt.rules.code import is_literal, keyword_of, quote
from ptopt.rules.data._items import ItemRule, item_evidence
from ptopt.source.index import FunctionNode

_FEATURES = re.compile(
    r"^librosa\.(load|resample|stft|cqt|pyin|yin|feature\.\w+|effects\.trim)$|^pyworld\.\w+$|(^|\.)(phonemize|spectrogram_torch"
    r"|mel_spectrogram\w*)$|\.(EmbedMolecule|GetMorganFingerprintAsBitVect)$"
)
_RANDOM = re.compile(r"random|augment|choice|uniform|shuffle|randint", re.I)


class FeaturesComputedPerItem(ItemRule):
    """A dataset computes the same features of a file again in every epoch.

    ## What it does
    Finds resampling (`librosa.load`, `librosa.resample`), spectra, pitch, phonemes and molecule features in code that runs for
    each item of a dataset, when they are not kept.

    ## Why it is slow
    These cost milliseconds to seconds an item and give the same result each time: every epoch pays for all of them again,
    and workers that cannot keep up leave the GPU idle.

    ## Example
    ```python
    def __getitem__(self, i):
        audio, rate = librosa.load(self.paths[i], sr=16000)
        return librosa.feature.melspectrogram(y=audio, sr=rate)
    ```

    ## Use instead
    ```python
    def __getitem__(self, i):
        cached = self.paths[i] + ".mel.npy"
        if not os.path.exists(cached):
            np.save(cached, features(self.paths[i]))
        return np.load(cached)
    ```

    ## Fix safety
    No fix: where the features are stored is the author's choice.

    ## Sources
    - [librosa documentation: librosa.load resamples](https://librosa.org/doc/latest/generated/librosa.load.html)
    """

    id = "PTO335"
    name = "features-computed-per-item"
    family = "data"
    severity = Severity.LOW
    most_stated = 0.35
    calls = frozenset(
        "load resample melspectrogram mfcc stft cqt pyin yin harvest dio phonemize spectrogram_torch mel_spectrogram pesq "
        "MolToGraph EmbedMolecule GetMorganFingerprintAsBitVect pyworld chroma_stft spectral_centroid".split()
    )
    when_wrong = (
        "the input is augmented before, so that the features differ each time, or the workers keep up"
    )

    VALID = (
        """
        import librosa, os
        class Clips(Dataset):
            def __getitem__(self, i):
                if not os.path.exists(self.cached[i]):
                    np.save(self.cached[i], librosa.feature.mfcc(y=self.read(i)))
                return np.load(self.cached[i])
        """,
        """
        import librosa
        def main(paths):
            return [librosa.load(path, sr=16000) for path in paths]
        """,
        """
        class Clips(Dataset):
            def __getitem__(self, i):
                return torch.load(self.paths[i])
        """,
    )
    INVALID = (
        Invalid("""
            import librosa, torch
            class Clips(Dataset):
                def __getitem__(self, i):
                    audio, rate = librosa.load(self.paths[i], sr=16000)  # !
                    return torch.from_numpy(audio)
        """),
        Invalid("""
            import torch, librosa
            class Clips(Dataset):
                def __getitem__(self, i):
                    return self.features(self.read(i))

                def features(self, audio):
                    return torch.tensor(librosa.feature.mfcc(y=audio, sr=16000))  # !
        """),
        Invalid("""
            import torch
            from mel import mel_spectrogram
            class Clips(Dataset):
                def __getitem__(self, i):
                    return mel_spectrogram(torch.load(self.paths[i]), 1024)  # !
        """),
    )

    def _candidate(self, node: ast.AST, file: SourceFile) -> bool:
        if not isinstance(node, ast.Call):
            return False
        name = file.imports.qualified(node.func) or file.source(node.func)
        raw = name == "librosa.load" and is_literal(keyword_of(node, "sr"), None)
        return bool(_FEATURES.search(name)) and not raw

    def check_item(self, node: ast.AST, function: FunctionNode, file: SourceFile) -> Iterator[Problem]:
        guard = file.index.enclosing(node, (ast.If, ast.ExceptHandler))
        if guard is not None and file.index.within(guard, function):
            return
        if not isinstance(node, ast.Call):
            return
        earlier = [call for call in file.calls.calls_in(function) if call.lineno < node.lineno]
        if any(_RANDOM.search(file.source(call.func)) for call in earlier):
            return
        yield Problem(
            node,
            f"{quote(file, node)} is computed for each item, again in every epoch. If its input is the same each time, compute it once "
            "and store the result (`np.save`), or keep it in memory.",
            0.35,
            item_evidence(node, file),
            cause=function,
            facts={"decodes": float("load" in file.source(node.func))},
        )
