package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
)

// fieldWords maps the fields of a command's request to the words on its command line: a flag's long
// name, or an argument in capitals.
func fieldWords(cmd *cobra.Command) map[string]string {
	switch strings.TrimPrefix(cmd.CommandPath(), "forkd ") {
	case "fork":
		return map[string]string{"n": "count", "snapshot_tag": "TAG", "tag": "TAG", "memory_limit_mib": "memory-limit-mib",
			"env": "env", "allow": "allow", "deny": "deny", "cpus": "cpus", "cpu_weight": "cpu-weight", "tree_cpus": "tree-cpus",
			"disk_read_limit_mib": "disk-read-limit-mib", "disk_write_limit_mib": "disk-write-limit-mib",
			"disk_limit_mib":        "disk-limit-mib",
			"net_rate_mib":          "net-rate-mib",
			"tree_pids":             "tree-pids",
			"tree_disk_limit_mib":   "tree-disk-limit-mib",
			"tree_net_rate_mib":     "tree-net-rate-mib",
			"tree_memory_limit_mib": "tree-memory-limit-mib",
			"at_end":                "at-end", "filesystem_only": "filesystem-only", "ttl_secs": "ttl", "idle_secs": "idle"}
	case "extend":
		return map[string]string{"at_end": "at-end", "filesystem_only": "filesystem-only", "ttl_secs": "ttl",
			"idle_secs": "idle", "sandbox id": "ID"}
	case "branch":
		return map[string]string{"n": "count", "tag": "tag", "mode": "mode", "max_pause_ms": "max-pause", "sandbox id": "ID",
			"allow": "allow", "deny": "deny"}
	case "net policy":
		return map[string]string{"allow": "allow", "deny": "deny", "sandbox id": "ID"}
	case "rollback":
		return map[string]string{"snapshot_tag": "TAG", "sandbox id": "ID"}
	case "eval":
		return map[string]string{"timeout_secs": "timeout", "language": "language", "code": "CODE", "sandbox id": "ID"}
	case "pool":
		return map[string]string{"size": "SIZE", "tag": "TAG"}
	case "snapshot create":
		return map[string]string{
			"tag": "tag", "image": "image", "from": "from", "kernel": "kernel", "rootfs": "rootfs", "memory_mib": "memory-mib",
			"vcpus": "vcpus",
			"warm":  "warm", "exec": "exec", "exec_user": "user", "exec_timeout_secs": "exec-timeout",
			"boot_wait_secs": "boot-wait", "warm_timeout_secs": "warm-timeout", "allow": "allow", "deny": "deny",
		}
	case "snapshot compact":
		return map[string]string{"to": "to", "tag": "TAG"}
	case "snapshot diff":
		return map[string]string{"limit": "limit", "tag": "BEFORE or AFTER"}
	case "snapshot rm", "snapshot info", "snapshot verify":
		return map[string]string{"tag": "TAG"}
	}
	return map[string]string{"sandbox id": "ID", "image name": "NAME", "tag": "TAG"}
}

// commandLine holds the typed arguments. Errors use the same spelling.
type commandLine []string

// inOwnWords rewrites an error of a request in the words of the command line. The daemon's errors
// name fields, "n is 0: ...", one after another.
func (l commandLine) inOwnWords(cmd *cobra.Command, err error) error {
	var e *client.Error
	if cmd == nil || !errors.As(err, &e) || e.Code != api.CodeInvalid {
		return err
	}
	words := fieldWords(cmd)
	parts := strings.Split(e.Message, "; ")
	for i, part := range parts {
		for field, word := range words {
			if rest, ok := strings.CutPrefix(part, field); ok && startsComplaint(rest) {
				parts[i] = l.asTyped(cmd, word) + rest
				break
			}
		}
	}
	own := *e
	own.Message = strings.Join(parts, "; ")
	return &own
}

// startsComplaint reports whether a text after a field's name is a complaint, such as "tag is ...".
func startsComplaint(rest string) bool {
	return strings.HasPrefix(rest, ": ") || strings.HasPrefix(rest, " is ") || strings.HasPrefix(rest, ` "`)
}

// asTyped returns a flag in the spelling of the command line. Arguments, in capitals, stay
// unchanged.
func (l commandLine) asTyped(cmd *cobra.Command, name string) string {
	f := cmd.Flag(name)
	switch {
	case f == nil:
		return name
	case f.Shorthand == "":
		return "--" + name
	}
	short := func(arg string) bool { return strings.HasPrefix(arg, "-"+f.Shorthand) }
	if slices.ContainsFunc(l, short) {
		return "-" + f.Shorthand
	}
	return "--" + name
}

// flagError describes an invalid flag value without the words of the parsing library.
func (l commandLine) flagError(cmd *cobra.Command, err error) error {
	if unknown := new(pflag.NotExistError); errors.As(err, &unknown) {
		return unknownFlag(cmd, unknown)
	}
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) {
		return err
	}
	f := bad.GetFlag()
	cause := bad.Unwrap()
	if !errors.Is(cause, strconv.ErrSyntax) && !errors.Is(cause, strconv.ErrRange) && f.Value.Type() != "duration" {
		return fmt.Errorf("%s %q: %w", l.asTyped(cmd, f.Name), bad.GetValue(), cause)
	}
	return fmt.Errorf("%s %q: want %s", l.asTyped(cmd, f.Name), bad.GetValue(), wanted(f.Value.Type()))
}

// unknownFlag adds what to do instead of a flag of docker.
func unknownFlag(cmd *cobra.Command, err *pflag.NotExistError) error {
	path := cmd.CommandPath()
	if err.GetSpecifiedName() == "mount" && (path == "forkd fork" || path == "forkd run") {
		return fmt.Errorf("%w: %s", err, noHostDirectories)
	}
	return err
}

// noHostDirectories is the answer to a directory of the host.
const noHostDirectories = "a directory of the host cannot be mounted. Copy files with forkd cp, build them into an " +
	"image, or use a volume (forkd fork --volume NAME:/path)"

// wanted describes the values of a flag's type.
func wanted(kind string) string {
	switch kind {
	case "int", "int64":
		return "a whole number"
	case "intSlice":
		return "whole numbers, with commas between them"
	case "bool":
		return "true or false"
	case "duration":
		return "a time, such as 500ms, 10s or 2m"
	}
	return "a " + kind
}

// alike returns the commands a misspelled word may mean: with one error, with two in a long word,
// or with the word as a prefix.
func alike(cmd *cobra.Command, word string) []string {
	var out []string
	for _, child := range cmd.Commands() {
		if child.IsAvailableCommand() &&
			slices.ContainsFunc(append(child.Aliases, child.Name()), func(name string) bool { return near(word, name) }) {
			out = append(out, child.Name())
		}
	}
	return out
}

func near(word, name string) bool {
	if len(word) >= 3 && strings.HasPrefix(name, word) {
		return true
	}
	slips := 1
	if min(len(word), len(name)) > 5 {
		slips = 2
	}
	return max(len(word), len(name)) > 2 && distance(word, name) <= slips
}

// distance counts the wrong, missing, additional or swapped letters between two words. At least one
// of them is a command's.
func distance(a, b string) int {
	if d := len(a) - len(b); d > 3 || d < -3 {
		return 4 // too many errors
	}
	d := make([][]int, len(a)+1)
	for i := range d {
		d[i] = make([]int, len(b)+1)
		d[i][0] = i
	}
	for j := range d[0] {
		d[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			wrong := 1
			if a[i-1] == b[j-1] {
				wrong = 0
			}
			d[i][j] = min(d[i-1][j]+1, d[i][j-1]+1, d[i-1][j-1]+wrong)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d[i][j] = min(d[i][j], d[i-2][j-2]+1)
			}
		}
	}
	return d[len(a)][len(b)]
}
