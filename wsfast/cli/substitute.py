"""``wsfast substitute``: the real words that change a text most."""

from __future__ import annotations

import argparse
import io
from pathlib import Path
from typing import TYPE_CHECKING

from wsfast.cli import arguments, outputs
from wsfast.cli.texts import Batch, add_texts, read_words

if TYPE_CHECKING:
    from wsfast.results.replacements import Replacements


def add_to(commands: arguments.Commands) -> None:
    """Add the command and its options."""
    parser = commands.add_parser(
        "substitute",
        help="print the real words that change a text most",
        description="Replace every word of a text by every word of the model's vocabulary, and "
        "print the replacements that change random attention features most, and how near they come "
        "to the worst case over all vectors.",
    )
    parser.set_defaults(run=_run)
    add_texts(parser)

    search = parser.add_argument_group("search")
    search.add_argument(
        "--position", type=_position, metavar="WORD|i", help="replace this word of the text, or "
        "the word of this number (default: each of them)",
    )  # fmt: skip
    search.add_argument(
        "--top", type=arguments.positive, default=20, metavar="K",
        help="how many replacements to print (default 20)",
    )  # fmt: skip
    search.add_argument(
        "--candidates", type=Path, metavar="FILE", help="try the words of this file, one a line: "
        "of one token each, or of any number with --replace several or rewrite",
    )  # fmt: skip
    search.add_argument(
        "--tokens", choices=("words", "whole", "all"), default="words",
        help="else try all words of the vocabulary, also numbers and punctuation (whole), or also "
        "pieces of words (all)",
    )  # fmt: skip
    search.add_argument(
        "--replace", choices=("words", "whole", "all", "several", "rewrite"), default="words",
        help="replace the words of the text that are one token, also punctuation (whole), or also "
        "the pieces of other words (all); or whole words of any number of tokens, by the "
        "--candidates of as many (several) or by each of them (rewrite: the text is embedded again "
        "and changes are of the rows of the other words alone)",
    )  # fmt: skip
    search.add_argument(
        "--harmless", action="store_true", help="print those that change it least instead"
    )
    search.add_argument(
        "--through-model", type=arguments.positive, metavar="K", help="run the first K of them "
        "through the whole model, and print how much its pooled output changes",
    )  # fmt: skip

    output = parser.add_argument_group("output")
    arguments.add_form(output, "a replacement")
    arguments.add_html(output)
    output.add_argument(
        "--plot", type=Path, metavar="OUT.png",
        help="also draw a heat map; several texts: OUT-0.png, ...",
    )  # fmt: skip
    arguments.add_progress(output)

    setting = parser.add_argument_group("model")
    arguments.add_model(setting)
    arguments.add_max_tokens(setting)
    arguments.add_draws(setting)
    arguments.add_seed(setting)


def _position(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


def _run(args: argparse.Namespace) -> int:
    outputs.check_picture("--plot", args.plot)
    outputs.check_page("--html", args.html)
    candidates = None if args.candidates is None else read_words(args.candidates)
    batch = Batch(args)
    import wsfast

    all_found = []

    def do(number: int, text: str) -> str:
        max_tokens = _kept(args, batch, number, text)
        found = wsfast.substitute(
            text,
            args.model,
            position=args.position,
            candidates=candidates,
            top_k=args.top,
            largest=not args.harmless,
            tokens=args.tokens,
            replace=args.replace,
            through_model=args.through_model,
            max_tokens=max_tokens,
            draws=args.draws,
            seed=args.seed,
        )
        if args.plot is not None:
            from wsfast.report.substitution import save_figure

            shown = number if batch.several else None
            save_figure(found.result, arguments.numbered_path(args.plot, shown))
        if args.html is not None:
            all_found.append(found)
        return _shown(args, number, found, batch)

    status = batch.run(do)
    if all_found:
        from wsfast.report.replacements import page

        outputs.write_page(args.html, page(all_found))
    return status


def _kept(args: argparse.Namespace, batch: Batch, number: int, text: str) -> int | None:
    """How many tokens of a text are kept, of one that --long lets be cut; None: all."""
    if args.through_model is None and (args.max_tokens is None or args.long == "cut"):
        return args.max_tokens  # type: ignore[no-any-return]
    from wsfast.text.batch import fitted
    from wsfast.text.embed import embedder_of, text_of

    # The table of words has no positions: a text of any length has its rows there.
    layer = "words" if args.through_model is None else 0
    embedder = embedder_of(args.model, layer, scale=False)
    encoding = embedder.encode(text_of("texts[0]", text))
    kept, cut = fitted(0, encoding, args.max_tokens, embedder.limit, args.long)
    if cut is not None:
        batch.say_cut(number, *cut)
    return max(kept.count, 1)  # a text without tokens is refused later, with a message of its own


def _shown(args: argparse.Namespace, number: int, found: Replacements, batch: Batch) -> str:
    """What is printed of one text."""
    from wsfast.report import replacements
    from wsfast.report.table import printable

    if args.csv:
        stream = io.StringIO()
        if batch.done == 0:
            replacements.write_csv_header(stream)
        replacements.write_csv_rows(stream, number, found.replacements)
        return stream.getvalue()
    if args.json:
        return replacements.json_line(number, found) + "\n"
    lines = [
        printable(found.embedded.text),
        replacements.table(found.replacements),
        *replacements.attained_lines(found),
    ]
    return arguments.headed(number, lines, first=batch.done == 0, several=batch.several)
