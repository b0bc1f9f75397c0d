package sshbridge

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Suffix ends the host names by which SSH clients know sandboxes.
const Suffix = ".forkd"

// Program is a forkd command line for options of ssh_config(5).
type Program struct {
	Path string   // absolute
	Args []string // before the name of the host
}

// Options returns the options with which ssh(1) reaches host by the program. host is a name or, in
// a configuration, the token %n.
func (p Program) Options(host string) []string {
	return []string{
		"ProxyCommand " + p.line(shellWord, "ssh", "proxy", host),
		"KnownHostsCommand " + p.line(quoted, "ssh", "host-key", host),
		"StrictHostKeyChecking yes",
		"UserKnownHostsFile none",
		"GlobalKnownHostsFile none",
		"HostKeyAlgorithms ssh-ed25519",
		"CheckHostIP no",
		"User " + DefaultUser,
	}
}

// line returns a command line. A percent sign begins a token of ssh_config, except in the last
// word, where it is one.
func (p Program) line(quote func(string) string, args ...string) string {
	words := append(append([]string{p.Path}, p.Args...), args[:len(args)-1]...)
	for i, w := range words {
		words[i] = quote(strings.ReplaceAll(w, "%", "%%"))
	}
	return strings.Join(append(words, quote(args[len(args)-1])), " ")
}

// plain are the bytes that need no quotes. A percent sign does, because ssh replaces its token by
// text that another program may have chosen, such as the address of a git submodule
// (CVE-2023-51385).
const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+=:,@"

// Host returns the host name of a sandbox for ssh. ok is false if id has other characters than an
// ID, because a shell reads the name.
func Host(id string) (host string, ok bool) {
	const others = "/+=:,@" // of plain
	id = strings.TrimSuffix(id, Suffix)
	ok = id != "" && id[0] != '-' && strings.Trim(id, plain) == "" && !strings.ContainsAny(id, others)
	return id + Suffix, ok
}

// shellWord quotes a word for the shell that runs a ProxyCommand.
func shellWord(w string) string {
	if strings.Trim(w, plain) == "" && w != "" {
		return w
	}
	return "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
}

// quoted quotes a word for ssh's own parser of a KnownHostsCommand.
func quoted(w string) string {
	if strings.Trim(w, plain) == "" && w != "" {
		return w
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(w) + `"`
}

// Config returns the block of ssh_config(5) for all sandboxes.
func (p Program) Config() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Sandboxes of forkd, as ID%s. Written by forkd ssh config.\nHost *%s\n", Suffix, Suffix)
	for _, o := range p.Options("%n") {
		fmt.Fprintf(&b, "    %s\n", o)
	}
	return b.String()
}

// maxConfig limits the user's configuration of ssh, in bytes.
const maxConfig = 4 << 20

// Install writes the block to own, and makes main, the user's configuration of ssh, include it.
// The line is the first one, because ssh uses the first value of an option. Install reports whether
// main changed.
func Install(main, own, block string) (changed bool, err error) {
	if strings.ContainsAny(own, "\"\n") {
		return false, fmt.Errorf("ssh cannot include %q: the name has a quote or a line break", own)
	}
	if err := os.MkdirAll(filepath.Dir(own), 0o700); err != nil {
		return false, err
	}
	if err := replace(own, []byte(block)); err != nil {
		return false, fmt.Errorf("write %s: %w", own, err)
	}
	if to, err := filepath.EvalSymlinks(main); err == nil {
		main = to // a configuration kept elsewhere stays a link
	}
	old, err := os.ReadFile(main)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	line := []byte(`Include "` + own + `"`)
	for l := range bytes.Lines(old) {
		if bytes.Equal(bytes.TrimSpace(l), line) {
			return false, nil
		}
	}
	if len(old) > maxConfig {
		return false, fmt.Errorf("%s has %d bytes, want at most %d: add the line %s by hand", main, len(old), maxConfig, line)
	}
	if err := os.MkdirAll(filepath.Dir(main), 0o700); err != nil {
		return false, err
	}
	next := append(append(line, '\n'), old...)
	if err := replace(main, next); err != nil {
		return false, fmt.Errorf("write %s: %w", main, err)
	}
	return true, nil
}

// replace replaces a file at once, so that no reader sees a part, with access for this user only.
func replace(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".forkd-*.tmp")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(b)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
