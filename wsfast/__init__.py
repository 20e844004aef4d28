"""How much does an attention layer react when one word changes?

Names are imported when they are first asked for: ``import wsfast`` does not import PyTorch.
"""

import sys
from importlib import import_module

import lazy_loader

from wsfast.results.shown import show_with as _show_with

# The stub beside this file says where each name comes from.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

# Results do not import what shows them.
_show_with("wsfast.report")

if "torch" in sys.modules:
    # A program may use the operators in torch.ops.wsfast by their names alone.
    import_module("wsfast.maps.attention_features")
