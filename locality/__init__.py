"""locality: does an image classifier look at the object?

`__init__.pyi` lists the public names. They are imported at first use, so that `import locality` and `locality --help` do not
wait for torch.
"""

import lazy_loader

from locality.torchvision_shim import install as _install_torchvision_shim

__version__ = "0.1.0"

_attached, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
_install_torchvision_shim()


def __getattr__(name: str) -> object:
    try:
        return _attached(name)
    except ModuleNotFoundError:
        from locality.errors import needing

        with needing(f"`{name}`"):
            raise
