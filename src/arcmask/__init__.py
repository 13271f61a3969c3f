"""Predictive feedback for masked diffusion language models, along the sphere on which their embeddings lie.

`import arcmask` is light: a module is imported when one of its names is first used. `__init__.pyi` lists the names.
"""

from importlib.metadata import version

import lazy_loader

__version__ = version("arcmask")

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
