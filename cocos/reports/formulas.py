"""Formulas of docstrings for a terminal: LaTeX in, Unicode out."""

import re

SYMBOLS = {
    **dict(zip(("alpha", "beta", "gamma", "delta", "eta", "theta", "lambda", "mu"), "αβγδηθλμ", strict=True)),
    **dict(zip(("pi", "rho", "sigma", "tau", "psi", "varphi", "varepsilon", "Delta"), "πρστψφεΔ", strict=True)),
    **dict(zip(("ell", "partial", "sum", "emptyset", "top"), "ℓ∂Σ∅⊤", strict=True)),
    **dict(zip(("lfloor", "rfloor", "lceil", "rceil", "langle", "rangle"), "⌊⌋⌈⌉⟨⟩", strict=True)),
    **{name: f" {sign} " for name, sign in zip(("in", "cup", "cap", "le", "ge", "ne"), "∈∪∩≤≥≠", strict=True)},
    "setminus": " ∖ ",
    "quad": "  ",
    **dict.fromkeys((",", "!", "textstyle", "left", "right", "bigl", "bigr", "Bigl", "Bigr"), ""),
}
FUNCTION_NAMES = {"log", "exp", "cos", "sin", "min", "max"}
ACCENTS = {"tilde": "\u0303", "bar": "\u0304"}
RAISED = dict(zip("0123456789+-=()nik", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿⁱᵏ", strict=True))
LOWERED = dict(zip("0123456789+-=()aehijklmnoprstuvx", "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓ", strict=True))
TOKEN = re.compile(r"\\[A-Za-z]+|\\.|\s+|.", re.DOTALL)


def _whole(text: str) -> bool:
    """Whether a part of a fraction needs no parentheses."""
    return re.fullmatch(r"[^\s+/(),-]+|\|[^|]*\||exp\([^()]*\)", text) is not None


class _Formula:
    """Reads the tokens of one formula from left to right."""

    def __init__(self, text: str):
        self.tokens, self.at = TOKEN.findall(text), 0

    def until(self, end: str | None) -> str:
        """Read up to a closing token, and skip it."""
        parts = []
        while self.at < len(self.tokens) and self.tokens[self.at] != end:
            parts.append(self.one(parts))
        self.at += 1
        return "".join(parts)

    def argument(self) -> str:
        """Read a group in braces, or the next token."""
        while self.tokens[self.at].isspace():
            self.at += 1
        if self.tokens[self.at] == "{":
            self.at += 1
            return re.sub(r"\s+", " ", self.until("}")).strip()
        return self.one([]).strip()

    def one(self, before: list[str]) -> str:
        """Read the next token with its arguments; it may change the last of the parts read `before`."""
        token = self.tokens[self.at]
        self.at += 1
        name = token.removeprefix("\\")
        if token in {"^", "_"}:
            return self.script(token, before)
        if token == "{":
            return self.until("}")
        if token == "&":
            return " if "
        if token[0] != "\\":
            return " " if token.isspace() else token
        if name in {"frac", "tfrac"}:
            parts = [part if _whole(part) else f"({part})" for part in (self.argument(), self.argument())]
            short = "/".join(parts)
            of_function = "".join(before).split()[-1:]
            return f"({' / '.join(parts)})" if of_function and of_function[0].lstrip("-") in FUNCTION_NAMES else short
        if name in {"text", "mathrm"}:
            return f" {self.argument()} " if name == "text" else self.argument()
        if name in ACCENTS:
            return self.argument() + ACCENTS[name]
        if name == "begin":
            self.argument()
            return "{ "
        if name == "end":
            self.argument()
            return " }"
        if name == "\\":
            return "; "
        return f" {name} " if name in FUNCTION_NAMES else SYMBOLS.get(name, name)

    def script(self, kind: str, before: list[str]) -> str:
        """Write a superscript or subscript; a power of e becomes exp."""
        text = self.argument()
        if before:
            before[-1] = before[-1].rstrip()
        if kind == "^" and before and before[-1] == "e":
            before[-1] = ""
            return f"exp({text})"
        table = RAISED if kind == "^" else LOWERED
        if all(character in table for character in text):
            return "".join(table[character] for character in text)
        if re.fullmatch(r"\w+|[^\s\w]", text):
            return kind + text
        return f"{kind}({text})" if kind == "^" else f"[{text}]"


def readable(latex: str) -> str:
    r"""Write a formula in Unicode, on one line: `\sum_{p \in P} e^{s_p / \tau}` is Σ[p ∈ P] exp(sₚ / τ)."""
    text = re.sub(r" {2,}", " ", _Formula(latex.replace(r"\quad", " ; ")).until(None))
    for pattern, put in (
        (r" ([,;)\]⌋⌉⟩])", r"\1"),
        (r"([(\[⌊⌈⟨]) ", r"\1"),
        (r",;", ";"),
        (r"if else", "else"),
        (r"(log|cos|sin|min|max) \(", r"\1("),
        (r"= - ", "= -"),
    ):
        text = re.sub(pattern, put, text)
    return text.strip()
