"""Signatures of foreign callables: their parameters, and the values they expect."""

import ast
import inspect
from typing import Any

import torch

from cocos.base.errors import InputError, nearest
from cocos.embeddings.scores import METRICS

ROLES = {
    "pairs": "pairs",
    "scores": "scores score sim sims similarity similarities similarity_matrix sim_matrix logits",
    "positive": "positive positives pos pos_mask positive_mask is_positive match mask",
    "negative": "negative negatives neg neg_mask negative_mask is_negative",
    "embeddings": "embeddings embedding embs emb features feature feats x z inputs input",
    "labels": "labels label targets target y classes groups ids",
    "query": "query queries q image images img imgs im image_features image_embeddings image_embeds img_emb "
    "query_emb query_embeddings anchor anchors",
    "candidate": "candidate candidates c text texts txt caption captions cap s key keys k text_features "
    "text_embeddings text_embeds txt_emb cap_emb candidate_emb candidate_embeddings proxies ref_emb",
    "candidate_labels": "candidate_labels ref_labels proxy_labels",
}
ROLE_OF = {name: role for role, names in ROLES.items() for name in names.split()}
ARGUMENTS_OF = {  # arguments that a loss may take, by the deciding one
    "pairs": ("pairs",),
    "scores": ("scores", "positive", "negative"),
    "two sides": ("query", "candidate", "labels", "candidate_labels"),
    "one set": ("embeddings", "labels"),
}
UNDERSTOOD = "(pairs), (scores, positive, negative), (embeddings, labels) and (query, candidate)"
RESERVED = ("arguments", "metric", "unit")


def literal(text: Any) -> Any:
    """A value of the command line: a number, true, false, none, a tuple or list of them, or text."""
    if not isinstance(text, str):
        return text
    plain = {"true": True, "false": False, "none": None}
    if text.strip().lower() in plain:
        return plain[text.strip().lower()]
    for read in (ast.literal_eval, float):  # inf and nan are numbers to the second one only
        try:
            return read(text.strip())
        except (ValueError, SyntaxError):
            continue
    return text


def value_of(name: str, text: Any, parameter: inspect.Parameter) -> Any:
    """A parameter as its annotation or its default has it."""
    written = {"float": float, "bool": bool, "str": str}.get(str(parameter.annotation), parameter.annotation)
    kind = written if written in {float, bool, str} else type(parameter.default)
    value = text if kind is str else literal(text)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind in {float, bool} and value is not None and not isinstance(value, kind | int):
        raise InputError(f"parameter {name}: {text!r} is not {'true or false' if kind is bool else 'a number'}")
    return bool(value) if kind is bool and value is not None else value


def named(signature: inspect.Signature | None) -> dict[str, inspect.Parameter]:
    """Its parameters that have a name of their own."""
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {name: p for name, p in signature.parameters.items() if p.kind not in variable} if signature else {}


def takes_any(signature: inspect.Signature | None) -> bool:
    """Whether it accepts any keyword, or Python does not know its parameters."""
    return signature is None or any(p.kind is inspect.Parameter.VAR_KEYWORD for p in signature.parameters.values())


def signature_of(target: Any) -> inspect.Signature | None:
    """Of a class its constructor, of a module its `forward`; None where Python does not know it."""
    try:
        return inspect.signature(target.forward if isinstance(target, torch.nn.Module) else target)
    except (TypeError, ValueError):
        return None


def roles_of(
    spelling: str, fields: dict[str, inspect.Parameter], given: dict[str, Any], arguments: str | None
) -> dict[str, str]:
    """Assign a role to each parameter of the callable: role -> name of the parameter."""
    if arguments is not None:
        chosen = [part.strip() for part in str(arguments).strip("()[] ").split(",")]
        for role in chosen:
            if role not in ROLES:
                raise InputError(nearest("argument of a loss", role, ROLES))
        return {role: str(place) for place, role in enumerate(chosen)}
    told = {name: p for name, p in fields.items() if name not in given}
    required = [name for name, p in told.items() if p.default is p.empty]
    optional = [name for name, p in told.items() if p.default is None]
    roles = {ROLE_OF.get(name.lower()) for name in required}
    if "candidate" in roles:
        kind = "two sides"
    elif "scores" in roles:
        kind = "scores"
    else:
        kind = "pairs" if "pairs" in roles else "one set"
    found: dict[str, str] = {}
    for name in (*required, *optional):
        role = ROLE_OF.get(name.lower(), "")
        role = "query" if role == "embeddings" and kind == "two sides" else role
        if role in ARGUMENTS_OF[kind] and role not in found:
            found[role] = name
        elif name in required:
            raise InputError(
                f"{spelling}: it takes ({', '.join(required)}), and {name!r} is not understood; understood by names "
                f"are {UNDERSTOOD}; say what they are in their order, -p arguments=..., or give -p {name}=..."
            )
    if not {"pairs", "scores"} & found.keys() and not {"query", "candidate"} <= found.keys() and len(found) < 2:
        raise InputError(
            f"{spelling}: it takes ({', '.join(required)}), which says too little; understood by their names are "
            f"{UNDERSTOOD}; say what they are in their order, -p arguments=..."
        )
    return found


def parameters_of(spelling: str, given: dict[str, Any], names: set[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters that are the callable's own, and those that cocos reads: metric, unit, arguments."""
    reserved = {name: literal(given[name]) for name in RESERVED if name in given and name not in names}
    metric, unit = reserved.get("metric"), reserved.get("unit")
    if metric is not None and metric not in METRICS:
        raise InputError(f"{spelling}: {nearest('metric', str(metric), METRICS)}")
    if unit is not None and (not isinstance(unit, int | float) or not 0 < unit < float("inf")):
        raise InputError(f"{spelling}: unit {unit!r}, expected a number above 0, the natural size of one weight")
    if isinstance(reserved.get("arguments"), tuple):
        reserved["arguments"] = ",".join(map(str, reserved["arguments"]))
    return {name: value for name, value in given.items() if name not in reserved}, reserved
