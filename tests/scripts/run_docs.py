"""Runs every command and snippet of Markdown pages as a reader would, and compares what the pages show with what comes.

Usage: run_docs.py --bin target/debug/outlast [--root DIR] [--at-once N] [--show] PAGE...

Each page gets a directory, a loopback address of its own in place of 127.0.0.1, `outlast` on its path and, unless it
starts one itself, a server (`outlast dev`). Its blocks are taken in order:

- `sh` is run by the page's shell, in which variables and background jobs stay. A command that fails, fails the page.
- A block below a line with "as `NAME`" or "file `NAME`" that ends with a colon is saved under that name.
- A block without a language, `text` or `json` is what the command above it printed. Blanks do not count, `…` is anything,
  a time is any time. An id, a lease or a key is one that the reader replaces: later blocks are run with the real one.

What a page cannot say to a reader stands in a comment above the block, `<!-- test: … -->`:

    skip: REASON        cannot be run here; counted and printed
    elsewhere: FILE     another test runs it: this file of the repository
    server              starts the server of the page, which then stays; `server: COMMAND` runs this instead
    terminal: NAME      run in another terminal and not waited for; what it shows is waited for
    interrupt: NAME     Ctrl-C in that terminal, before the block
    exits: CODE         ends with this code
    setup: COMMAND      run this first, unseen
    output: COMMAND     what this block shows is printed by this command
    until: COMMAND      run this first until it succeeds: what a reader waits for with patience
"""

import argparse
import concurrent.futures
import dataclasses
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

DEADLINE_SECONDS = 60
MARK = "@@docs@@"
ID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
REPLACED = [("id", ID), ("lease", r"\b[0-9a-f]{32}\b"), ("key", r"\bol_[A-Za-z0-9_]{20,}"), ("secret", r"whsec_[A-Za-z0-9+/=]{20,}")]
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z"
OUTPUT = ("", "text", "json")


class Broken(Exception):
    """The page does not do what it says."""


@dataclasses.dataclass
class Block:
    line: int
    language: str
    text: str
    directives: list
    file_name: str


def blocks_of(text):
    """The fenced blocks of a page, with the directives and the file name above each."""
    blocks, directives, before, fence = [], [], "", None
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        if fence is not None:
            if line.strip() == "```":
                body = "".join(part + "\n" for part in fence[1])
                name = re.search(r"\b(?:as|file) `([^`]+)`[^`]*:$", before)
                blocks.append(Block(fence[2], fence[0], body, directives, name.group(1) if name else None))
                directives, before, fence = [], "", None
            else:
                fence[1].append(line)
        elif line.startswith("```"):
            fence = (line[3:].strip(), [], number)
        elif line.startswith("<!-- test:"):
            while "-->" not in line:
                line += "\n" + next(lines)[1]
            word, _, rest = line[len("<!-- test:"):line.index("-->")].strip().partition(":")
            directives.append((word.strip(), rest.strip()))
        elif line.strip():
            before = line.strip()
    if fence is not None:
        raise Broken(f"line {fence[2]}: the block has no end")
    if directives:
        raise Broken(f"no block follows {directives}")
    return blocks


class Terminal:
    """A shell that stays, and everything that it and its programs have printed."""

    def __init__(self, directory, environment):
        self.printed = ""
        self.changed = threading.Condition()
        self.has_ended = False
        command = ["bash", "--noprofile", "--norc", "-s"]
        self.process = subprocess.Popen(command, cwd=directory, env=environment, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        while chunk := os.read(self.process.stdout.fileno(), 65536):
            with self.changed:
                self.printed += chunk.decode(errors="replace")
                self.changed.notify_all()
        with self.changed:
            self.has_ended = True
            self.changed.notify_all()

    def send(self, line):
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Broken(f"the shell has ended:\n{self.printed}") from None

    def wait(self, what, probe):
        """What `probe` makes of the output, once it makes anything."""
        until = time.monotonic() + DEADLINE_SECONDS
        with self.changed:
            while (found := probe(self.printed)) is None:
                # Programs in the background may hold the output of a shell that has ended.
                ended = self.has_ended or self.process.poll() is not None
                if ended or time.monotonic() >= until:
                    state = "a command failed" if ended else f"waited {DEADLINE_SECONDS} s"
                    raise Broken(f"{state} for {what}; printed was:\n{self.printed[-4000:]}")
                self.changed.wait(0.2)
            return found

    def end(self, name):
        try:
            os.killpg(self.process.pid, name)
        except ProcessLookupError:
            pass
        try:
            self.process.wait(DEADLINE_SECONDS)
        except subprocess.TimeoutExpired:
            raise Broken(f"a terminal does not end on {name!r}") from None
        finally:
            self.process.stdin.close()


class Page:
    def __init__(self, path, options, number):
        self.path = path
        self.root = options.root
        self.show = options.show
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="outlast-docs-"))
        pid = os.getpid()
        # All of 127.0.0.0/8 is this machine: pages that are run at once, here or by others, do not meet.
        self.address = f"127.{100 + (pid >> 11) % 100}.{(pid >> 3) % 256}.{(pid & 7) << 5 | number % 31 + 1}"
        self.environment = self.surroundings(options.bin)
        self.terminals = {}
        self.replaced = {}
        self.counts = {"run": 0, "shown": 0, "saved": 0, "elsewhere": 0}
        self.skipped = []
        self.last = None
        self.started = None
        self.script = 0

    def surroundings(self, binary):
        programs = self.directory / ".bin"
        programs.mkdir()
        (programs / "outlast").symlink_to(pathlib.Path(binary).resolve())
        (programs / "python3").symlink_to(sys.executable)
        # A terminal gets no meter from curl; neither does a page.
        (self.directory / ".curlrc").write_text("silent\nshow-error\n")
        return {
            "PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(self.directory), "LANG": "C.UTF-8", "TZ": "UTC", "NO_COLOR": "1",
            "COLUMNS": "100", "OUTLAST_LISTEN": f"{self.address}:8080", "OUTLAST_URL": f"http://{self.address}:8080",
        }

    def run(self, blocks):
        own = any(word == "server" for block in blocks for word, _ in block.directives)
        if not own and any(self.is_run(block) for block in blocks):
            self.serve("outlast dev")
        for block in blocks:
            try:
                self.take(block)
            except Broken as error:
                raise Broken(f"{self.path}:{block.line}: {error}") from None
        return time.monotonic() - self.started if self.started else 0

    @staticmethod
    def is_run(block):
        return block.language == "sh" and not any(word in ("skip", "elsewhere") for word, _ in block.directives)

    def take(self, block):
        for word, rest in block.directives:
            if word == "setup":
                self.foreground(rest, 0)
            elif word == "until":
                self.foreground(f"until {rest}; do sleep 0.1; done", 0)
            elif word == "output":
                self.last = (None, self.foreground(rest, 0))
            elif word == "interrupt":
                self.terminals.pop(rest).end(signal.SIGINT)
            elif word not in ("skip", "elsewhere", "server", "terminal", "exits"):
                raise Broken(f"the test knows no directive {word!r}")
        directives = dict(block.directives)
        if "skip" in directives:
            if len(directives["skip"]) < 10:
                raise Broken("a block that is skipped needs a reason")
            self.skipped.append((block.line, directives["skip"]))
            self.last = None
        elif "elsewhere" in directives:
            if not (self.root / directives["elsewhere"]).is_file():
                raise Broken(f"there is no {directives['elsewhere']}")
            self.counts["elsewhere"] += 1
            self.last = None
        elif "server" in directives:
            self.counts["run"] += 1
            self.serve(directives["server"] or block.text)
        elif block.file_name:
            self.save(block)
        elif block.language == "sh":
            self.counts["run"] += 1
            if "terminal" in directives:
                self.background(directives["terminal"], block.text)
            else:
                self.last = (None, self.foreground(block.text, int(directives.get("exits", 0))))
        elif block.language in OUTPUT:
            self.compare(block)
        else:
            raise Broken(f"nothing runs this `{block.language}`: name its file, or say in a comment who does")

    def real(self, text):
        """The text with what the reader replaces, and with the address of this page."""
        for shown, value in self.replaced.items():
            text = text.replace(shown, value)
        text = re.sub(r"^outlast listen\b(?!.*--listen)", "outlast listen --listen 127.0.0.1:9000", text, flags=re.M)
        return re.sub(r"\b(127\.0\.0\.1|localhost)\b", self.address, text)

    def write_script(self, text):
        self.script += 1
        path = self.directory / f".block-{self.script}.sh"
        path.write_text(self.real(text))
        return path.name

    def terminal(self, name):
        if name not in self.terminals:
            self.terminals[name] = Terminal(self.directory, self.environment)
        return self.terminals[name]

    def foreground(self, text, code):
        """Runs commands to their end, and gives what they printed."""
        terminal = self.terminal("1")
        begin = len(terminal.printed)
        name = self.write_script(text)
        run = f"set -eo pipefail; . ./{name}; set +eo pipefail" if code == 0 else f"( . ./{name} )"
        # Commands must not read what is sent to the shell.
        terminal.send(f"{{ {run}; }} </dev/null; printf '{MARK}%s@' $?")
        pattern = re.compile(rf"(.*?){MARK}(\d+)@", re.S)
        found = terminal.wait("the end of the block", lambda printed: pattern.match(printed, begin))
        if int(found.group(2)) != code:
            raise Broken(f"it ended with {found.group(2)} and not with {code}; printed was:\n{found.group(1)}")
        if self.show:
            print(f"--- {self.path}\n{text}---\n{found.group(1)}")
        return found.group(1)

    def background(self, name, text):
        terminal = self.terminal(name)
        self.last = (terminal, len(terminal.printed))
        terminal.send(f". ./{self.write_script(text)} </dev/null")

    def serve(self, command):
        if "server" in self.terminals:
            self.terminals.pop("server").end(signal.SIGTERM)
        self.background("server", f"exec {command.strip()}" if "\n" not in command.strip() else command)
        self.terminals["server"].wait("the server to listen", lambda printed: re.search("outlast listening on", printed))
        if self.started is None:
            self.started = time.monotonic()

    def save(self, block):
        path = (self.directory / block.file_name).resolve()
        if self.directory.resolve() not in path.parents:
            raise Broken(f"{block.file_name} lies elsewhere")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.real(block.text))
        self.counts["saved"] += 1
        self.last = None

    def compare(self, block):
        if self.last is None:
            raise Broken("no command above it has printed this")
        terminal, printed = self.last
        pattern, names = self.pattern(block.text)
        if terminal is None:
            found = re.fullmatch(rf"\s*{pattern}\s*", printed, re.S)
            if not found:
                raise Broken(f"it shows\n{block.text}\nand printed was\n{printed}")
        else:
            expression = re.compile(pattern, re.S)
            found = terminal.wait(f"what the page shows\n{block.text}", lambda text: expression.search(text, printed))
        for name, shown in names.items():
            self.replaced[shown] = found.group(name)
        self.counts["shown"] += 1

    def pattern(self, shown):
        """The expression that the real output has to match, and the names of its groups for what the reader replaces."""
        names = {}
        any_of = "|".join(f"(?P<{kind}>{expression})" for kind, expression in REPLACED)
        parts = re.split(rf"(…|\s+|{TIME}|{'|'.join(expression for _, expression in REPLACED)})", shown.strip())
        expression = ""
        for part in parts:
            kind = re.fullmatch(any_of, part)
            if part == "…":
                expression += ".*?"
            elif not part.strip():
                expression += r"\s*" if part else ""
            elif re.fullmatch(TIME, part):
                expression += TIME
            elif kind and part not in self.replaced:
                same = [name for name, text in names.items() if text == part]
                name = same[0] if same else f"{kind.lastgroup}{len(names)}"
                expression += f"(?P={name})" if same else f"(?P<{name}>{dict(REPLACED)[kind.lastgroup]})"
                names[name] = part
            else:
                # JSON may have blanks around its marks that the page leaves out.
                expression += re.sub(r"(\\?[{}\[\],:])", r"\\s*\1\\s*", re.escape(self.real(part)))
        return expression, names

    def close(self):
        for terminal in self.terminals.values():
            terminal.end(signal.SIGKILL)
        shutil.rmtree(self.directory, ignore_errors=True)


def run_page(path, options, number):
    text = (options.root / path).read_text()
    page = Page(path, options, number)
    try:
        seconds = page.run(blocks_of(text))
    except Broken as error:
        message = str(error)
        return page, 0, message if path in message else f"{path}: {message}"
    finally:
        page.close()
    return page, seconds, None


def main():
    arguments = argparse.ArgumentParser(description="run the commands and snippets of Markdown pages")
    arguments.add_argument("--bin", required=True)
    arguments.add_argument("--root", type=pathlib.Path, default=pathlib.Path("."))
    arguments.add_argument("--at-once", type=int, default=4)
    arguments.add_argument("--show", action="store_true", help="print what each block printed, to write a page by")
    arguments.add_argument("pages", nargs="+")
    options = arguments.parse_args()
    broken = []
    with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
        runs = [pool.submit(run_page, path, options, number) for number, path in enumerate(options.pages)]
        for future in runs:
            page, seconds, error = future.result()
            counts = ", ".join(f"{count} {what}" for what, count in page.counts.items())
            print(f"{page.path}: {counts}, {len(page.skipped)} skipped, {seconds:.1f} s{' BROKEN' if error else ''}")
            for line, reason in page.skipped:
                print(f"  line {line} not run: {reason}")
            broken.extend([error] if error else [])
    for error in broken:
        print(f"\n{error}", file=sys.stderr)
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
