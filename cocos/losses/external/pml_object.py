"""A module of pytorch-metric-learning that was built already, as the loss of its class with its settings."""

from typing import Any

from cocos.losses.external import pml
from cocos.losses.external.embedded import Embedded

PLAIN_KINDS = (bool, int, float, str)
# Arguments that do not change the gradient, or whose place a loss of cocos has: it adds up over its queries.
IGNORED_ARGUMENTS = ("collect_stats", "embedding_reg_weight", "mat_based_loss", "reducer")


def of(module: Any) -> Embedded | None:
    """The loss that `pml:` and the name of the class load, with the settings of a module.

    Returns:
        None where it has more than they say: proxies of its own, a regularizer, or objects of other kinds.
    """
    cls = type(module)
    if not hasattr(module, "distance") or list(module.parameters()) or cls.__name__ in pml.UNUSABLE:
        return None
    arguments, given = pml._arguments(cls), {}
    for name in arguments.keys() - {*IGNORED_ARGUMENTS, *pml.SIZES, "distance"}:
        value = getattr(module, name, arguments[name].default)
        if value is not None and not isinstance(value, PLAIN_KINDS):
            return None
        if value is not None and value != arguments[name].default:
            given[name] = value
    own, usual = module.distance, cls.get_default_distance(None)
    if _numbers(own) != _numbers(usual) or type(own) is not type(usual):
        plain = _numbers(type(own)())
        given["distance"] = type(own).__name__
        given |= {f"distance.{name}": value for name, value in _numbers(own).items() if value != plain[name]}
    return pml.load(f"{pml.PREFIX}{cls.__name__}", dict(sorted(given.items())))


def _numbers(distance: Any) -> dict[str, Any]:
    """Settings of a distance, by name."""
    names = pml._arguments(type(distance)).keys() - {*IGNORED_ARGUMENTS}
    return {name: getattr(distance, name) for name in names if isinstance(getattr(distance, name, None), PLAIN_KINDS)}
