package mcp

import (
	"context"

	"github.com/forkd/forkd/api"
)

type execution struct {
	bySandbox
	Args        []string          `json:"args,omitempty" jsonschema:"program and its arguments; no shell reads them. Either args or command"`
	Command     string            `json:"command,omitempty" jsonschema:"command line for /bin/sh -c, instead of args"`
	TimeoutSecs float64           `json:"timeout_secs,omitempty" jsonschema:"limit, at which the program and all it started are killed; 30 if absent"`
	Cwd         string            `json:"cwd,omitempty" jsonschema:"working directory"`
	User        string            `json:"user,omitempty" jsonschema:"user to run as; absent: the image's"`
	Env         map[string]string `json:"env,omitempty" jsonschema:"added to the environment"`
	Stdin       *string           `json:"stdin,omitempty" jsonschema:"standard input"`
}

// executed is the result of a program. A program that fails is no error.
type executed struct {
	Stdout   string   `json:"stdout"`
	Stderr   string   `json:"stderr"`
	ExitCode int      `json:"exit_code" jsonschema:"exit code of the program; 128+n if signal n ended it, 124 if the limit did"`
	TimedOut bool     `json:"timed_out,omitempty" jsonschema:"the limit ended it"`
	KilledBy string   `json:"killed_by,omitempty" jsonschema:"set if the guest's kernel killed it for want of memory"`
	Notes    []string `json:"notes,omitempty" jsonschema:"where to read the rest of an output that was cut"`
}

// defaultTimeout of exec_command, as of the original, in seconds.
const defaultTimeout = 30

type evaluation struct {
	bySandbox
	Code        string  `json:"code" jsonschema:"code to run; the value of its last expression is the result"`
	Language    string  `json:"language,omitempty" jsonschema:"interpreter; python if absent"`
	TimeoutSecs float64 `json:"timeout_secs,omitempty" jsonschema:"limit; absent: the daemon's"`
}

// evaluated is the answer of the warm interpreter. An exception in the code is no error of the call.
type evaluated struct {
	Result   *string  `json:"result,omitempty" jsonschema:"repr of the last expression; absent if there is none"`
	Error    *string  `json:"error,omitempty" jsonschema:"traceback of an exception in the code"`
	ExitCode int      `json:"exit_code" jsonschema:"0, 1 after an exception, or the code's own after an exit"`
	Stdout   string   `json:"stdout,omitempty"`
	Stderr   string   `json:"stderr,omitempty"`
	Notes    []string `json:"notes,omitempty" jsonschema:"where to read the rest of an output that was cut"`
}

// addRunTools adds the tools that run programs.
func addRunTools(r *registry) {
	add(r, tool{name: "exec_command", title: "Run a program", about: "Run a program in a sandbox to its end, and return " +
		"its output and exit code. Start a server in the background with command, such as `server >/tmp/log 2>&1 &`, and " +
		"wait for it with wait_for_text.", effect: destroys, outside: true}, execute)
	add(r, tool{name: "eval_code", title: "Evaluate code", about: "Run code in the warm interpreter of a sandbox. " +
		"Variables and imports stay for the next call, and branches and forks have them, too. It is faster than " +
		"exec_command of an interpreter.", effect: destroys, outside: true}, evaluate)
}

func execute(ctx context.Context, c call, in execution) (executed, error) {
	switch {
	case len(in.Args) > 0 && in.Command != "":
		return executed{}, invalid("both args and command are given", "give one of them")
	case in.Command != "":
		in.Args = []string{"/bin/sh", "-c", in.Command}
	case len(in.Args) == 0:
		return executed{}, invalid("there is no program to run", `give args, such as ["python3", "-c", "print(2+2)"], or command`)
	}
	if in.TimeoutSecs == 0 {
		in.TimeoutSecs = defaultTimeout
	}
	res, err := c.client.Exec(ctx, in.SandboxID, api.ExecRequest{Args: in.Args, TimeoutSecs: in.TimeoutSecs,
		Cwd: in.Cwd, User: in.User, Env: in.Env, Stdin: in.Stdin})
	if err != nil {
		return executed{}, err
	}
	texts, notes := c.brief(map[string][]byte{
		"stdout": bytesOf(res.Stdout, res.StdoutRaw), "stderr": bytesOf(res.Stderr, res.StderrRaw),
	})
	return executed{texts["stdout"], texts["stderr"], res.ExitCode, res.TimedOut, res.KilledBy,
		append(notes, dropped(res.DroppedBytes)...)}, nil
}

func evaluate(ctx context.Context, c call, in evaluation) (evaluated, error) {
	res, err := c.client.Eval(ctx, in.SandboxID,
		api.EvalRequest{Code: in.Code, Language: in.Language, TimeoutSecs: in.TimeoutSecs})
	if err != nil {
		return evaluated{}, err
	}
	texts, notes := c.brief(map[string][]byte{
		"stdout": bytesOf(res.Stdout, res.StdoutRaw), "stderr": bytesOf(res.Stderr, res.StderrRaw),
		"result": []byte(textOf(res.Result)), "error": []byte(textOf(res.Error)),
	})
	out := evaluated{ExitCode: res.ExitCode, Stdout: texts["stdout"], Stderr: texts["stderr"],
		Notes: append(notes, dropped(res.DroppedBytes)...)}
	if res.Result != nil {
		text := texts["result"]
		out.Result = &text
	}
	if res.Error != nil {
		text := texts["error"]
		out.Error = &text
	}
	return out, nil
}

// bytesOf returns a stream exactly as the program wrote it.
func bytesOf(text string, raw []byte) []byte {
	if len(raw) > 0 {
		return raw
	}
	return []byte(text)
}

// dropped returns a note about output the daemon did not keep.
func dropped(n int64) []string {
	if n == 0 {
		return nil
	}
	return []string{byteCount(n) + " of output were not kept at all: write large outputs to a file, and read that in " +
		"parts"}
}
