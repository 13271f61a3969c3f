"""Show the base model as it is: the pictures and readings that `arcmask inspect` wrote into base/inspect."""

from collections.abc import Mapping

from arcmask.errors import ArcmaskError
from arcmask.report.document import Picture
from arcmask.report.folder import Experiment
from arcmask.run_folder import INSPECTION

_PNG, _HEADER = b"\x89PNG\r\n\x1a\n", 24  # a file's first bytes, and the end of its width and height
# Name of a diagnostic -> title, in the order in which they are shown.
UNTRAINED = {
    "gain": "Held-out bound with feedback minus the plain bound",
    "generation": "Quality of samples against their entropy",
}
GEOMETRY = {
    "norms": "Embedding norm against frequency rank",
    "angles": "Angle between mask and predicted mean over t",
    "paths": "Norm along the straight path to the predicted mean",
    "sphere": "Paths of the operators on the sphere",
    "confidence": "Entropies and the confidence weight",
    "karcher": "Distance from the converged Fréchet mean",
    "accuracy": "Accuracy of the predictions",
}


def inspection_figures(experiment: Experiment, titles: Mapping[str, str]) -> list[Picture]:
    """Return the diagnostics with these titles that have a picture; empty if the base was not inspected."""
    pictures = []
    for name, title in titles.items():
        data, png = experiment.inspected.get(name), experiment.folder / INSPECTION / f"{name}.png"
        if data is not None and png.is_file():
            content = png.read_bytes()
            if not content.startswith(_PNG) or len(content) < _HEADER:
                raise ArcmaskError(f"{png} is not a picture; remove {png.parent} and run the same command again")
            pictures.append(Picture(f"base-{name}", title, str(data.get("reading", "")), content, data))
    return pictures
