"""Count words that the field does not use, in docs, docstrings and comments: an alarm, which fails nothing.

    python .ci/private_words.py

A high count points to prose that needs rewriting. Replacing the word alone does not help a reader.
"""

import ast
import io
import re
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PRIVATE = {
    "what … in place of a noun": r"\bwhat\b(?! if\b| is new\b)",
    "whoever, whatever": r"\b(?:who|what|which)ever\b",
    "told, tell, tells": r"\b(?:told|tells?)\b",
    "anew": r"\banew\b",
    "beside": r"\bbeside\b",
    "nobody but, nothing but": r"\b(?:nobody|nothing) but\b",
    "in place of": r"\bin (?:the )?place of\b",
    "goes, is gone": r"\bgoes\b|\b(?:is|are) gone\b",
    "held against": r"\bheld against\b",
    "stretch": r"\bstretch(?:es)?\b",
    "landed": r"\blanded\b",
}


def prose_of(path: Path) -> str:
    """Return the docstrings and comments of a module, or the text of a page without its code blocks."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return re.sub(r"```.*?```|`[^`]*`", " ", text, flags=re.DOTALL)
    nodes = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [ast.get_docstring(node) or "" for node in ast.walk(ast.parse(text)) if isinstance(node, nodes)]
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    found += [token.string for token in tokens if token.type == tokenize.COMMENT]
    return "\n".join(found)


def main() -> None:
    """Print how often each word occurs in 1,000 words, for pages and for code."""
    places = {
        "pages": [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))],
        "code": sorted((ROOT / "spark_pages").rglob("*.py")),
    }
    texts = {name: "\n".join(prose_of(path) for path in paths) for name, paths in places.items()}
    words = {name: len(text.split()) for name, text in texts.items()}
    print(f"{'of 1,000 words':30}" + "".join(f"{name:>10}" for name in texts))
    for label, pattern in PRIVATE.items():
        counts = {name: len(re.findall(pattern, text, re.IGNORECASE)) for name, text in texts.items()}
        print(f"{label:30}" + "".join(f"{1000 * counts[name] / words[name]:10.2f}" for name in texts))
    print(f"{'words':30}" + "".join(f"{words[name]:10,}" for name in texts))


if __name__ == "__main__":
    main()
