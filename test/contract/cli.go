package contract

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/forkd/forkd/api"
)

// cli makes calls with the program forkd.
type cli struct{ program, url, token string }

// command is a run of the program for a call.
type command struct {
	args  []string
	stdin string
	// answer converts the output. If nil, the output is JSON.
	answer func(out output) any
}

// output is the end of a run.
type output struct {
	stdout, stderr string
	code           int
}

func (c cli) Call(ctx context.Context, op string, args map[string]any) (any, error) {
	build, ok := commands()[op]
	if !ok {
		return nil, errNoCall
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := build(arguments(args))
	out, err := c.run(ctx, cmd)
	if err != nil {
		return nil, err
	}
	program := op == "exec" || op == "agent.exec" // their exit code is the guest's
	if cmd.answer != nil && (out.code == 0 || program) && !strings.Contains(out.stderr, `"code"`) {
		return normal(cmd.answer(out)), nil
	}
	if out.code != 0 && out.stderr != "" { // eval ends with the code of the guest
		return nil, cliFailure(out)
	}
	var v any
	if err := json.Unmarshal([]byte(out.stdout), &v); err != nil {
		return nil, fmt.Errorf("forkd %s: %w: %s", strings.Join(cmd.args, " "), err, out.stdout)
	}
	return v, nil
}

func (c cli) run(ctx context.Context, of command) (output, error) {
	args := append([]string{"--url", c.url, "--token", c.token, "--json"}, of.args...)
	cmd := exec.CommandContext(ctx, c.program, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(of.stdin), &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return output{}, err
	}
	return output{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}, nil
}

// cliFailure reads the error, which is the last line on standard error.
func cliFailure(out output) error {
	lines := strings.Split(strings.TrimSpace(out.stderr), "\n")
	var f struct{ Error, Code, Reason, Hint string }
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &f); err != nil {
		return fmt.Errorf("forkd ended with %d: %s", out.code, out.stderr)
	}
	return &Failure{Code: f.Code, Reason: f.Reason, Hint: f.Hint, Text: f.Error}
}

// commands are the program's commands by operation. Operations without a command are absent.
func commands() map[string]func(arguments) command {
	all := map[string]func(arguments) command{}
	for _, some := range []map[string]func(arguments) command{
		listCommands(), snapshotCommands(), sandboxCommands(), siblingCommands(), guestCommands(),
	} {
		for op, c := range some {
			all[op] = c
		}
	}
	return all
}

// plain is a command with JSON output and fixed arguments.
func plain(args ...string) func(arguments) command {
	return func(arguments) command { return command{args: args} }
}

// filtered is a list with filters.
func filtered(args ...string) func(arguments) command {
	return func(a arguments) command {
		all := args[:len(args):len(args)]
		for _, f := range a.texts("filter") {
			all = append(all, "--filter", f)
		}
		return command{args: all}
	}
}

// labelling is the command that changes the labels of an object.
func labelling(parameter string) func(arguments) command {
	return func(a arguments) command {
		body := bodyOf[api.LabelsRequest](a)
		args := []string{"label", a.text(parameter)}
		for k, v := range body.Set {
			args = append(args, k+"="+v)
		}
		for _, k := range body.Remove {
			args = append(args, k+"-")
		}
		return command{args: args}
	}
}

// labelFlags are the flags for labels of a body.
func labelFlags(a arguments) (flags []string) {
	body, _ := a["body"].(map[string]any)
	set, _ := body["labels"].(map[string]any)
	for k, v := range set {
		flags = append(flags, "--label", fmt.Sprintf("%s=%v", k, v))
	}
	return flags
}

// of is a command about one object.
func of(parameter string, args ...string) func(arguments) command {
	return func(a arguments) command { return command{args: append(args[:len(args):len(args)], a.text(parameter))} }
}

// field returns one field of a JSON object.
func field(name string) func(output) any {
	return func(o output) any {
		var v map[string]any
		_ = json.Unmarshal([]byte(o.stdout), &v)
		return v[name]
	}
}

// lines decodes a JSON value per line.
func lines(o output) any {
	list := []any{}
	for line := range strings.Lines(o.stdout) {
		var v any
		if json.Unmarshal([]byte(line), &v) == nil {
			list = append(list, v)
		}
	}
	return list
}

// first returns the first element of a JSON list.
func first(o output) any {
	var v []any
	if json.Unmarshal([]byte(o.stdout), &v) != nil || len(v) == 0 {
		return nil
	}
	return v[0]
}

// nothing is the answer of a call that returns none.
func nothing(output) any { return nil }

func listCommands() map[string]func(arguments) command {
	return map[string]func(arguments) command{
		"version":  func(arguments) command { return command{args: []string{"version"}, answer: field("daemon")} },
		"capacity": plain("capacity"),
		"drain": func(a arguments) command {
			args := []string{"drain", "--detach", "--" + bodyText(a, "mode")}
			if bodyText(a, "until_restart") == "true" {
				args = append(args, "--until-restart")
			}
			return command{args: args}
		},
		"drain-status": plain("drain", "--status"),
		"cancel-drain": plain("drain", "--cancel"),
		"audit": func(a arguments) command {
			return command{args: []string{"audit", "--action", a.text("action"), "--limit", a.text("limit")}, answer: lines}
		},
		"verify-audit":   plain("audit", "verify"),
		"list-images":    filtered("image", "ls"),
		"list-sandboxes": filtered("ps"),
		"list-snapshots": filtered("snapshot", "ls"),
		"list-pools":     plain("pool"),
		"list-keys":      plain("key", "ls"),
		"delete-image": func(a arguments) command {
			return command{args: []string{"image", "rm", a.text("name")}, answer: nothing}
		},
		"collect-layers": plain("store", "gc", "--dry-run"),
		"create-key": func(a arguments) command {
			body, _ := a["body"].(map[string]any)
			args := []string{"key", "create", fmt.Sprint(body["name"])}
			if tenant, ok := body["tenant"]; ok {
				args = append(args, "--tenant", fmt.Sprint(tenant))
			}
			for _, scope := range body["scopes"].([]any) {
				args = append(args, "--scope", fmt.Sprint(scope))
			}
			return command{args: args}
		},
		"list-services": func(a arguments) command {
			return command{args: []string{"service", "ls", a.id(), "--wait", a.text("wait_secs") + "s"}}
		},
		"declare-service": func(a arguments) command {
			body, _ := a["body"].(map[string]any)
			args := []string{"service", "add", a.id(), a.text("service")}
			if restart := bodyText(a, "restart"); restart != "" {
				args = append(args, "--restart", restart)
			}
			if port, ok := body["port"]; ok {
				args = append(args, "--port", fmt.Sprint(port))
			}
			if stop := bodyText(a, "stop_signal"); stop != "" {
				args = append(args, "--stop-signal", stop)
			}
			if live, ok := body["liveness"].(map[string]any); ok {
				args = append(args, "--liveness-interval", fmt.Sprintf("%vs", live["interval_secs"]))
				if n, ok := live["failure_threshold"]; ok {
					args = append(args, "--liveness-failures", fmt.Sprint(n))
				}
			}
			return command{args: append(append(args, "--"), arguments(body).texts("command")...)}
		},
		"service-log": func(a arguments) command {
			return command{args: []string{"logs", a.id(), "--service", a.text("service")}, answer: field("log")}
		},
		"change-service": func(a arguments) command {
			return command{args: []string{"service", bodyText(a, "action"), a.id(), a.text("service")}, answer: first}
		},
		"remove-service": func(a arguments) command {
			return command{args: []string{"service", "rm", a.id(), a.text("service")}, answer: nothing}
		},
		"list-secrets": plain("secret", "ls"),
		"set-secret": func(a arguments) command {
			body, _ := a["body"].(map[string]any)
			args := []string{"secret", "set", a.text("secret")}
			metadata, _ := body["metadata"].(map[string]any)
			for name, v := range metadata {
				args = append(args, "--metadata", fmt.Sprintf("%s=%v", name, v))
			}
			return command{args: args, stdin: fmt.Sprint(body["value"])}
		},
		"list-volumes": plain("volume", "ls"),
		"get-volume":   func(a arguments) command { return command{args: []string{"volume", "inspect", a.text("volume")}} },
		"create-volume": func(a arguments) command {
			req := bodyOf[api.CreateVolumeRequest](a)
			args := []string{"volume", "create", req.Name}
			if req.SizeMiB != 0 {
				args = append(args, "--size-mib", fmt.Sprint(req.SizeMiB))
			}
			if req.From != "" {
				args = append(args, "--from", req.From)
			}
			return command{args: args}
		},
		"snapshot-volume": func(a arguments) command {
			return command{args: []string{"volume", "snapshot", a.text("volume"), bodyOf[api.SnapshotVolumeRequest](a).Name}}
		},
		"remove-volume": func(a arguments) command {
			return command{args: []string{"volume", "rm", a.text("volume")}, answer: nothing}
		},
		"list-private-networks": plain("net", "ls"),
		"get-private-network": func(a arguments) command {
			return command{args: []string{"net", "inspect", a.text("network")}}
		},
		"create-private-network": func(a arguments) command {
			return command{args: []string{"net", "create", bodyOf[api.CreatePrivateNetworkRequest](a).Name}}
		},
		"fork-private-network": func(a arguments) command {
			b := bodyOf[api.ForkGroupRequest](a)
			args := []string{"fork", "--group", a.text("network")}
			if b.N != nil {
				args = append(args, "-n", fmt.Sprint(*b.N))
			}
			if b.Prefix != "" {
				args = append(args, "--group-prefix", b.Prefix)
			}
			return command{args: args}
		},
		"remove-private-network": func(a arguments) command {
			return command{args: []string{"net", "rm", a.text("network")}, answer: nothing}
		},
		"remove-secret": func(a arguments) command {
			return command{args: []string{"secret", "rm", a.text("secret")}, answer: nothing}
		},
		"tenant": of("tenant", "tenant", "weight"),
		"set-tenant": func(a arguments) command {
			return command{args: []string{"tenant", "weight", a.text("tenant"), bodyText(a, "cpu_weight")}}
		},
	}
}

// bodyText returns a field of the body as text.
func bodyText(a arguments, name string) string {
	body, _ := a["body"].(map[string]any)
	return arguments(body).text(name)
}

func snapshotCommands() map[string]func(arguments) command {
	return map[string]func(arguments) command{
		"snapshot-info":    of("tag", "snapshot", "info"),
		"label-snapshot":   labelling("tag"),
		"verify-snapshot":  of("tag", "snapshot", "verify"),
		"snapshot-receipt": of("tag", "inspect"),
		"diff-snapshots": func(a arguments) command {
			return command{args: []string{"snapshot", "diff", a.tag(), a.text("other")}}
		},
		"rename-snapshot": func(a arguments) command {
			return command{args: []string{"rename", a.tag(), bodyText(a, "to")}}
		},
		"compact-snapshot": func(a arguments) command {
			return command{args: []string{"snapshot", "compact", a.tag(), "--to", bodyText(a, "to")}}
		},
		"copy-snapshot": func(a arguments) command {
			args := []string{"snapshot", "copy", a.tag()}
			peers, _ := a["body"].(map[string]any)["peers"].([]any)
			for _, p := range peers {
				args = append(args, "--from-peer", fmt.Sprint(p))
			}
			return command{args: args}
		},
		"delete-snapshot": func(a arguments) command {
			return command{args: []string{"snapshot", "rm", a.tag()}, answer: nothing}
		},
		"publish-snapshot": func(a arguments) command {
			args := []string{"snapshot", "publish", a.tag()}
			if bodyText(a, "public") == "false" {
				args = append(args, "--undo")
			}
			return command{args: args}
		},
		"set-pool": func(a arguments) command {
			return command{args: []string{"pool", a.tag(), bodyText(a, "size")}, answer: nothing}
		},
		"create-snapshot": func(a arguments) command {
			args := []string{"snapshot", "create", "--tag", bodyText(a, "tag")}
			if from := bodyText(a, "from"); from != "" {
				args = append(args, "--from", from, "--exec", "echo made")
			} else {
				args = append(args, "--image", bodyText(a, "image"))
			}
			return command{args: args}
		},
	}
}

func sandboxCommands() map[string]func(arguments) command {
	return map[string]func(arguments) command{
		"fork": func(a arguments) command {
			args := append([]string{"fork", bodyText(a, "snapshot_tag")}, labelFlags(a)...)
			if n := bodyText(a, "n"); n != "" {
				args = append(args, "--count", n)
			}
			body, _ := a["body"].(map[string]any)
			if join, ok := body["net_join"].(map[string]any); ok {
				args = append(args, "--net-join", fmt.Sprintf("%v:%v", join["network"], join["alias"]))
			}
			volumes, _ := body["volumes"].([]any)
			for _, v := range volumes {
				one, _ := v.(map[string]any)
				args = append(args, "--volume", fmt.Sprintf("%v:%v", one["name"], one["path"]),
					"--volume-mode", fmt.Sprint(one["mode"]))
			}
			services, _ := body["services"].([]any)
			for _, s := range services {
				one, _ := s.(map[string]any)
				command := strings.Join(arguments(one).texts("command"), " ")
				args = append(args, "--service", fmt.Sprintf("%v=%s", one["name"], command))
			}
			return command{args: args}
		},
		"kill-sandbox": func(a arguments) command {
			args := []string{"kill", a.id()}
			if a.is("tree") {
				args = append(args, "--tree")
			}
			return command{args: args, answer: nothing}
		},
		"branch": func(a arguments) command {
			args := append([]string{"branch", a.id()}, labelFlags(a)...)
			if tag := bodyText(a, "tag"); tag != "" {
				args = append(args, "--tag", tag)
			}
			if n := bodyText(a, "n"); n != "" {
				args = append(args, "--count", n)
			}
			return command{args: args}
		},
		"rollback": func(a arguments) command {
			return command{args: []string{"rollback", a.id(), bodyText(a, "snapshot_tag")}}
		},
		"label-sandbox": labelling("id"),
		"pause":         of("id", "pause"),
		"resume": func(a arguments) command {
			args := []string{"resume", a.id()}
			body, _ := a["body"].(map[string]any)
			peers, _ := body["peers"].([]any)
			for _, p := range peers {
				args = append(args, "--from-peer", fmt.Sprint(p))
			}
			return command{args: args}
		},
		"set-life": func(a arguments) command {
			ttl := bodyText(a, "ttl_secs") + "s"
			return command{args: []string{"extend", a.id(), "--ttl", ttl, "--at-end", bodyText(a, "at_end")}}
		},
		"sandbox-receipt": of("id", "inspect"),
		"list-receipts":   of("sandbox", "inspect", "--all"),
		"sandbox-console": func(a arguments) command {
			return command{args: []string{"logs", a.id()}, answer: field("console")}
		},
		"network-flows": of("id", "net", "ps"),
		"network-log": func(a arguments) command {
			return command{args: []string{"net", "log", a.id()}, answer: lines}
		},
	}
}

// siblingCommands choose between siblings.
func siblingCommands() map[string]func(arguments) command {
	return map[string]func(arguments) command{
		"keep-best": func(a arguments) command {
			body, _ := a["body"].(map[string]any)
			args := []string{"keep", "--best", bodyText(a, "best"), "--by", join(body["args"])}
			if body["dry_run"] == true {
				args = append(args, "--dry-run")
			}
			if of := bodyText(a, "of"); of != "" {
				args = append(args, "--of", of)
			}
			ids, _ := body["ids"].([]any)
			for _, id := range ids {
				args = append(args, fmt.Sprint(id))
			}
			return command{args: args}
		},
		"promote": func(a arguments) command {
			args := []string{"promote", a.id()}
			if place := bodyText(a, "place"); place != "" {
				args = append(args, "--place", place)
			}
			if bodyText(a, "parent") == "kill" {
				args = append(args, "--discard")
			}
			return command{args: args}
		},
		"merge": func(a arguments) command {
			args := []string{"merge", bodyText(a, "theirs"), a.id()}
			if bodyText(a, "dry_run") == "true" {
				args = append(args, "--dry-run")
			}
			return command{args: args}
		},
	}
}

// join returns a list as the words of a shell command.
func join(list any) string {
	var words []string
	all, _ := list.([]any)
	for _, word := range all {
		words = append(words, fmt.Sprint(word))
	}
	return strings.Join(words, " ")
}

func guestCommands() map[string]func(arguments) command {
	program := func(o output) any {
		return map[string]any{"stdout": o.stdout, "stderr": o.stderr, "exit_code": o.code}
	}
	run := func(id string, list any, stdin string) command {
		args := []string{"exec", id}
		if stdin != "" {
			args = []string{"exec", "-i", id}
		}
		args = append(args, "--")
		for _, arg := range list.([]any) {
			args = append(args, fmt.Sprint(arg))
		}
		return command{args: args, stdin: stdin, answer: program}
	}
	return map[string]func(arguments) command{
		"exec": func(a arguments) command {
			body, _ := a["body"].(map[string]any)
			return run(a.id(), body["args"], "")
		},
		"agent.exec": func(a arguments) command { return run(a.id(), a["args"], a.text("stdin")) },
		"eval":       func(a arguments) command { return command{args: []string{"eval", a.id(), bodyText(a, "code")}} },
		"agent.write": func(a arguments) command {
			to := a.id() + ":" + a.text("path")
			return command{args: []string{"cp", "-", to}, stdin: a.text("content"), answer: nothing}
		},
		"agent.read": func(a arguments) command {
			from := a.id() + ":" + a.text("path")
			return command{args: []string{"cp", from, "-"}, answer: func(o output) any { return o.stdout }}
		},
	}
}
