"""A dialogue in a terminal, and a game against a player in it."""

import contextlib
import pathlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import rich.box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .._command._errors import NonFiniteError
from .._run._disk import reason, write_whole
from ._clock import Clock
from ._game import Game
from ._record import write_record
from ._thinking import Thinker
from ._watch import is_plain


#: The number of moves that `hint` and `why` list.
_HINTS = 5
#: A move is a blunder that costs so much of the chance to win.
_BLUNDER = 0.2


class _Leave(Exception):
    """Ends a session."""


class Dialogue:
    """Reads lines that a person types: `help`, `quit` and an app's commands, or anything else.

    **Attributes:**

    - `plain`: whether to draw without colours, in ASCII.
    """

    def __init__(
        self,
        console: Console,
        read: Callable[[str], str],
        *,
        others: Sequence[tuple[str, str]],
        answer: Callable[[str], None],
        commands: Mapping[str, tuple[str, Callable[[], None]]],
        with_text: Mapping[str, Callable[[str], None]] | None = None,
    ):
        """**Arguments:**

        - `console`: the output.
        - `read`: shows its argument and returns a line. `EOFError` or `KeyboardInterrupt` ends the
            session.
        - `others`: input that is no command, and its effect, for the list of commands.
        - `answer`: called with a line that is no command. Its `ValueError` is shown.
        - `commands`: by its names, separated by commas, the effect of each and its function.
        - `with_text`: by name, a function that is called with the text after the name.
        """
        self._with_text = with_text or {}
        self.plain = is_plain(console)
        self._console, self._read, self._answer = console, read, answer
        every = {
            **commands,
            "help": ("show this list", self._help),
            "quit": ("leave the game", self._quit),
        }
        self._about = [*others, *((names, about) for names, (about, _) in every.items())]
        self._commands = {
            name: call for names, (_, call) in every.items() for name in names.split(", ")
        }
        self._commands |= dict.fromkeys(("q", "exit"), self._quit)

    @contextlib.contextmanager
    def leaving(self) -> Iterator[None]:
        """Ends where the person leaves."""
        try:
            yield
        except (_Leave, EOFError, KeyboardInterrupt):
            self.say("\nYou left the game.")

    def turn(self, prompt: str) -> None:
        """Reads one line and does what it says. Bad input raises no error."""
        line = self._read(prompt).strip()
        word, _, rest = line.partition(" ")
        command = self._commands.get(" ".join(line.lower().split()))
        if command is not None:
            command()
        elif word.lower() in self._with_text:
            if rest.strip():
                self._with_text[word.lower()](rest.strip())
            else:
                self.say(f'{word.lower()} needs a text after it. Type "help" for the commands.')
        elif line:
            try:
                self._answer(line)
            except ValueError as error:
                self.say(f'{str(error).rstrip(".")}. Type "help" for the commands.')

    def say(self, text: str | Text) -> None:
        """Prints a text, as it is."""
        said = Text(text) if isinstance(text, str) else text
        self._console.print(said, soft_wrap=True)

    def _help(self) -> None:
        width = max(len(what) for what, _ in self._about)
        for what, about in self._about:
            self.say(f"  {what:{width}}  {about}")

    def _quit(self) -> None:
        raise _Leave


class Session:
    """One game between a person and a player, in the terminal."""

    def __init__(
        self,
        start: Game,
        console: Console,
        *,
        first: bool = True,
        seed: int = 0,
        read: Callable[[str], str] = input,
        seconds: float | None = None,
        most: int | None = None,
        ponder: bool = False,
    ):
        """**Arguments:**

        - `start`: a new game, whose actor the person plays against.
        - `console`, `read`: as for [`zero_app.Dialogue`][].
        - `first`: whether the person moves first.
        - `seed`: that of the game, which is saved with a game of chance.
        - `seconds`, `most`, `ponder`: as for [`zero_app.serve_gtp`][].
        """
        self._thinker = Thinker(start.actor, most=most) if seconds or ponder else None
        self._clock = None if seconds is None else Clock.start(0.0, seconds, 1)
        self._ponders = ponder
        self._games = [start]  # after each move
        self._seed = seed
        self._saved: set[pathlib.Path] = set()  # what this session may write again
        self._console = console
        self._first, self._side = first, start.board.sides[0 if first else 1]
        board = start.board
        self._dialogue = Dialogue(
            console,
            read,
            others=[
                (board.example, board.about),
                ("save FILE", "write the game into a file that `serve` and other programs load"),
            ],
            answer=self._move,
            commands={
                "hint, ?": ("show the plan for your move", self._hint),
                "why": ("show the plan of the player's last move", self._why),
                "moves": ("list the legal moves", self._moves),
                "undo": ("take back your last move and the reply", self._undo),
                "board": ("draw the board again", self._draw),
                "review": ("show how the chance to win changed, and the blunders", self._review),
            },
            with_text={"save": self._save},
        )
        self._say = self._dialogue.say

    @property
    def game(self) -> Game:
        """The position that is played."""
        return self._games[-1]

    def _moved(self, mine: bool) -> Game | None:
        """The last position in which the person chose a move, or the player did."""
        of = lambda game: (game.mover == self._side) == mine and not game.must_pass
        return next(filter(of, self._games[-2::-1]), None)

    @property
    def _replied(self) -> Game | None:
        return self._moved(mine=False)

    def run(self) -> None:
        """Plays until the end or until the person leaves."""
        self._say(f"You play {self._side} and move {'first' if self._first else 'second'}.")
        self._say(f'Type a move such as {self.game.board.example}, or "help".')
        with self._dialogue.leaving():
            self._draw()
            if self._thinker is not None:
                self._say("Compiling the search ...")
                self._thinker.ready(self.game)
            while True:
                while not self.game.over:
                    self._turn()
                self._end()
                while self.game.over:
                    self._dialogue.turn("over> ")

    def _turn(self) -> None:
        game, mine = self.game, self.game.mover == self._side
        if game.must_pass:
            self._say(f"{'You have' if mine else 'I have'} no move and must pass.")
            self._goto(game.play(game.legal[0]))
        elif mine:
            with self._pondering():
                self._dialogue.turn(f"{self._side}> ")
        else:
            # The first search is compiled, which takes longer than all others together.
            known = self._replied or self._thinker
            self._say("Thinking ..." if known else "Thinking, and compiling the search ...")
            if self._thinker is not None:  # `review` tells what this search found
                game = self._games[-1] = self._thinker.thought(game, self._clock)
            action = int(game.plan.action)
            self._goto(game.play(action))
            solved = f", which ends {game.scores[action]:+d} for me" if game.scores else ""
            self._say(f"I play {game.name(action).lower()}{solved}.")
            self._draw()

    @contextlib.contextmanager
    def _pondering(self) -> Iterator[None]:
        """Thinks meanwhile about the position, if told to."""
        ended, thinker, game = threading.Event(), self._thinker, self.game

        def think() -> None:
            assert thinker is not None
            with contextlib.suppress(NonFiniteError):  # which the move itself will raise
                for _ in thinker.grow(game):
                    if ended.is_set():
                        return

        thread = threading.Thread(target=think, daemon=True)
        if self._ponders and game.scores is None:
            thread.start()
        try:
            yield
        finally:
            ended.set()
            if thread.ident is not None:
                thread.join()

    def _move(self, text: str) -> None:
        self._goto(self.game.play(self.game.board.action(text, self.game.first_moves)))
        self._draw()

    def _goto(self, game: Game) -> None:
        """Another position of the game: the next one, or one before."""
        del self._games[game.num_plies - self._games[0].num_plies :]
        self._games.append(game)

    def _end(self) -> None:
        mine = self.game.total if self._first else -self.game.total
        verdict = ", you win" if mine > 0 else ", you lose" if mine < 0 else ""
        self._say(f"The game is over: {self.game.board.result(self.game)}{verdict}.")
        self._say('"review" shows the blunders, "save FILE" keeps it, "quit" leaves.')

    # ---- commands

    def _hint(self) -> None:
        if self.game.over:
            self._say("The game is over.")
        else:
            self._explain("Your moves", self.game)

    def _why(self) -> None:
        if (game := self._replied) is None:
            self._say("I have not moved yet.")
        else:
            self._explain(f"Why I played {game.name(int(game.plan.action)).lower()}", game)

    def _moves(self) -> None:
        self._say("Legal: " + " ".join(map(self.game.name, self.game.legal)).lower())

    def _undo(self) -> None:
        if (game := self._moved(mine=True)) is None:
            return self._say("You have no move to take back.")
        self._goto(game)
        self._draw()

    def _draw(self) -> None:
        plain = self._dialogue.plain
        picture = self.game.board.draw(self.game, plain=plain)
        shown = Text(picture) if isinstance(picture, str) else picture
        self._console.print("", shown, "", sep="\n")

    def _table(self, title: str) -> Table:
        box = rich.box.ASCII if self._dialogue.plain else rich.box.SIMPLE
        return Table(title=title, title_justify="left", box=box)

    def _explain(self, title: str, game: Game) -> None:
        """Prints the moves of a plan, the best first."""
        plan, prior = game.plan, game.prior
        table = self._table(title)
        table.add_column("move")
        visits = ("visits",) if plan.visits.any() else ()
        for column in (*visits, "share", "value", "prior"):
            table.add_column(column, justify="right")
        others = np.arange(len(prior)) != int(plan.action)
        for action in np.lexsort((-prior, -plan.weights, others))[:_HINTS]:
            if prior[action] > 0 or plan.weights[action] > 0:
                table.add_row(
                    game.name(int(action)).lower(),
                    *((f"{plan.visits[action]:.0f}",) if visits else ()),
                    f"{plan.weights[action]:.1%}",
                    f"{plan.qvalues[action]:+z.2f}",
                    f"{prior[action]:.1%}",
                )
        self._console.print(table)
        self._say(f"Expected: {' '.join(game.line())}")
        what = "expects a result of" if game.pays_points else "wins with a chance of"
        self._say(f"{game.mover} {what} {game.told(float(game.plan.value))}.")
        if scores := game.scores:
            best = sorted(scores, key=scores.__getitem__, reverse=True)[:_HINTS]
            told = ", ".join(f"{game.name(action).lower()} {scores[action]:+d}" for action in best)
            self._say(f"Solved, with the best moves of both: {told}.")

    def _review(self) -> None:
        """Prints what the player thinks of every position, and which moves cost much."""
        games = self._games
        # The values of the side that moves first.
        sign = lambda g: 1 if g.first_moves else -1
        values = [sign(g) * float(g.plan.value) for g in games if not g.over]
        if self.game.over:
            values.append(float(self.game.total))
        points, table = self.game.pays_points, self._table("The game so far")
        side = f"{self.game.board.sides[0]} {'expects' if points else 'wins'}"
        for column in ("", "move", side, ""):
            table.add_column(column, justify="left" if column == "move" else "right")
        for ply, (before, after) in enumerate(zip(values, values[1:], strict=False)):
            loss = (before - after) * sign(games[ply])
            lost = f"{loss:.2f}" if points else f"{loss / 2:.0%}"
            note = f"a blunder: {lost} lost" if loss / 2 >= _BLUNDER * self.game.max_value else ""
            table.add_row(f"{ply + 1}.", self.game.moves[ply], self.game.told(after), note)
        self._console.print(table)

    def _save(self, name: str) -> None:
        record = write_record(self._games, self._seed)
        if name == "-":
            return self._say(record)
        try:
            path = pathlib.Path(name).expanduser()
            if path.is_dir():
                return self._say(f"{name} is a folder; give the name of a file.")
            if path.exists() and path.resolve() not in self._saved:
                return self._say(f"{name} exists; give another name.")
            write_whole(path, f"{record}\n")
            self._saved.add(path.resolve())
        except (OSError, RuntimeError, ValueError) as e:  # the latter two of `~nobody` and NUL
            self._say(f"{name} cannot be written ({reason(e)}); give another file.")
        else:
            self._say(f"The game is in {path}.")
