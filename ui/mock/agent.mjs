// The agent of the mock's guests: a shell that knows four commands, and files in memory.
import { Refusal } from "./world.mjs";

const frame = (message, flags = 0) => {
  const data = Buffer.from(JSON.stringify(message));
  const head = Buffer.alloc(5);
  head[0] = flags;
  head.writeUInt32BE(data.length, 1);
  return Buffer.concat([head, data]);
};

/** A terminal with a line of input and an echo. */
class Shell {
  #line = "";

  constructor(size, send, end) {
    Object.assign(this, { size, send, end });
    send("Welcome to the mock.\r\n$ ");
  }

  input(text) {
    for (const c of text) {
      if (c === "\r") {
        this.send("\r\n");
        this.#run(this.#line.trim());
        this.#line = "";
      } else if (c === "\x7f") {
        if (this.#line) this.send("\b \b");
        this.#line = this.#line.slice(0, -1);
      } else {
        this.#line += c;
        this.send(c);
      }
    }
  }

  #run(line) {
    const [command, ...args] = line.split(" ");
    if (command === "exit") return this.end(Number(args[0] ?? 0));
    if (command === "echo") this.send(args.join(" ") + "\r\n");
    else if (line === "stty size") this.send(`${this.size.rows} ${this.size.cols}\r\n`);
    else if (command === "color") this.send("\x1b[32mgreen\x1b[0m \x1b[31mred\x1b[0m \x1b[34mblue\x1b[0m\r\n");
    else if (command) this.send(`sh: ${command}: not found\r\n`);
    this.send("$ ");
  }
}

export class Agent {
  #shells = new Map();
  #pid = 100;
  files = new Map(Object.entries({
    "/etc/hostname": Buffer.from("sandbox\n"),
    "/etc/os-release": Buffer.from('PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\n'),
    "/home/user/main.py": Buffer.from('import numpy as np\n\nprint(np.arange(10).sum())  # 45, größer als 42\n'),
    "/home/user/data.bin": Buffer.from([0, 1, 2, 3, 255, 254]),
    "/home/user/large.txt": Buffer.alloc(2 << 20, "x"),
    "/var/log/boot.log": Buffer.from("booted\n"),
    "/tmp/.keep": Buffer.alloc(0),
  }));

  async serve(id, path, query, request, answer, body) {
    if (path === "files") return this.#file(query.get("path"), request, answer, body);
    if (path === "forkd.agent.v1.Inventory/List") return this.#processes(id, answer);
    const message = path.endsWith("/Start") ? JSON.parse(body.subarray(5).toString()) : JSON.parse(body.toString() || "{}");
    if (path === "process.Process/Start") return this.#start(message, answer);
    answer.setHeader("Content-Type", "application/json");
    answer.end(JSON.stringify(this.#call(path, message)));
  }

  #call(path, m) {
    const shell = this.#shells.get(m.process?.pid);
    switch (path) {
      case "process.Process/SendInput":
        if (!shell) throw new Refusal(404, "not_found", "no such process");
        shell.input(Buffer.from(m.input.pty, "base64").toString());
        return {};
      case "process.Process/Update":
        if (shell) shell.size = m.pty.size;
        return {};
      case "filesystem.Filesystem/ListDir": return { entries: this.#list(m.path) };
      default: throw new Refusal(404, "unimplemented", `no method ${path}`);
    }
  }

  /** Each guest has the processes of its snapshot, and a worker of its own. */
  #processes(id, answer) {
    const own = [...id].reduce((n, c) => (n * 31 + c.charCodeAt(0)) % 9973, 7);
    const text = (s) => Buffer.from(s).toString("base64");
    const one = (pid, start, args, anon, state = "S") => ({
      pid, ppid: 1, uid: 0, startTicks: String(start), name: text(args.split("\0")[0]), args: text(args), state: text(state),
      rssKib: String(anon + 4096), pssKib: String(anon + 2048), anonKib: String(anon),
    });
    answer.setHeader("Content-Type", "application/connect+json");
    answer.write(frame({ processes: [one(1, 0, "/sbin/init", 1500 + own), one(80, 310, "python3\0-i", 42_000)] }));
    answer.write(frame({ processes: [one(200 + own, 9000 + own, `worker\0--sandbox\0${id}`, 512)] }));
    answer.write(frame({ end: {} }));
    answer.end(frame({}, 2));
  }

  #start(m, answer) {
    const pid = ++this.#pid;
    answer.setHeader("Content-Type", "application/connect+json");
    answer.write(frame({ event: { start: { pid } } }));
    const send = (text) => answer.write(frame({ event: { data: { pty: Buffer.from(text).toString("base64") } } }));
    const end = (code) => {
      this.#shells.delete(pid);
      answer.write(frame({ event: { end: { exitCode: code, exited: true, status: `exit status ${code}` } } }));
      answer.end(frame({}, 2));
    };
    this.#shells.set(pid, new Shell(m.pty.size, send, end));
    answer.on("close", () => this.#shells.delete(pid));
  }

  #list(dir) {
    const base = dir.endsWith("/") ? dir : dir + "/";
    const names = new Map();
    for (const [path, data] of this.files) {
      if (!path.startsWith(base)) continue;
      const [name, ...rest] = path.slice(base.length).split("/");
      names.set(name, rest.length ? null : data);
    }
    if (!names.size && dir !== "/") throw new Refusal(404, "not_found", `${dir}: no such file or directory`);
    return [...names].map(([name, data]) => ({
      name, path: base + name, type: data ? "FILE_TYPE_FILE" : "FILE_TYPE_DIRECTORY", size: String(data?.length ?? 4096), mode: data ? 420 : 493,
      permissions: data ? "-rw-r--r--" : "drwxr-xr-x", owner: "root", group: "root", modifiedTime: "2026-01-02T15:04:05Z",
    }));
  }

  #file(path, request, answer, body) {
    if (request.method === "POST") {
      this.files.set(path, body);
      answer.setHeader("Content-Type", "application/json");
      return answer.end(JSON.stringify([{ name: path.split("/").at(-1), path, type: "file" }]));
    }
    const data = this.files.get(path);
    if (!data) throw new Refusal(404, "not_found", `${path}: no such file`);
    answer.setHeader("Content-Type", "application/octet-stream");
    answer.setHeader("Content-Security-Policy", "sandbox");
    answer.end(data);
  }
}
