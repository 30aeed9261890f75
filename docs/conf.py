"""Sphinx settings of the documentation: `python -m sphinx -W --keep-going docs docs/_build`.

Every page can be read from a disk without a network: formulas are MathML, and no script or font is fetched.
"""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]

import cocos

project = "cocos"
author = "The cocos developers"
project_copyright = author
version = release = cocos.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton", "mathml", "shelf"]
exclude_patterns = ["_build", "_ext"]
source_suffix = {".rst": "restructuredtext", ".md": "markdown", ".myst": "markdown"}  # .myst: generated
default_role = "code"
nitpicky = True
# Types of other packages, whose documentation is not at hand, and of inner files.
nitpick_ignore_regex = [(r"py:.*", r"(?!cocos).*"), (r"py:.*", r"cocos\.\w+\.\w+.*")]

myst_enable_extensions = ["dollarmath", "deflist", "colon_fence"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
napoleon_use_rtype = False
napoleon_custom_sections = ["Counts", "Net", "Source"]

html_theme = "furo"
html_title = f"cocos {version}"
html_static_path = ["_static"]
html_css_files = ["cocos.css"]
html_favicon = "_static/favicon.svg"
html_search_scorer = str(HERE / "_static" / "scorer.js")
html_copy_source = False
html_math_renderer = "mathml"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
