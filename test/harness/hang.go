package harness

import (
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/vm/guestdump"
)

// EvidenceVariable names a directory for evidence of hanging guests. If it is unset, the evidence
// is only logged.
const EvidenceVariable = "FORKD_TEST_EVIDENCE"

// Hung returns the sandboxes with a warning about a hanging guest kernel.
func (d *Daemon) Hung(ctx context.Context) (out []api.SandboxInfo, err error) {
	list, err := d.Client.ListSandboxes(ctx)
	for _, sb := range list {
		if strings.HasPrefix(sb.Warning, "guest kernel hangs") {
			out = append(out, sb)
		}
	}
	return out, err
}

// Evidence collects the evidence on a sandbox that does not answer: the position of its guest, its
// lineage with the receipt of each capture, the state of all its layers, and the log lines that
// name it. symbolsOf is an answering sandbox of the same boot, for the kernel's symbols; it may be
// empty. Evidence freezes the sandbox in a snapshot, which it keeps, and the sandbox continues to
// run.
func (d *Daemon) Evidence(ctx context.Context, id, symbolsOf string) (string, error) {
	var b strings.Builder
	var errs []error
	note := func(what string, v any, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
			return
		}
		text, is := v.(string)
		if !is {
			j, _ := json.MarshalIndent(v, "", "  ")
			text = string(j)
		}
		fmt.Fprintf(&b, "== %s\n%s\n", what, text)
	}
	sb, err := d.Client.Sandbox(ctx, id)
	note("sandbox", sb, err)
	tag := "hang-" + id
	_, err = d.Client.Branch(ctx, id, api.BranchRequest{Tag: tag, Mode: api.BranchFull})
	var dump guestdump.Dump
	if err == nil {
		dump, err = guestdump.Open(d.Data, tag)
	}
	note("guest", dump.Format(d.symbols(ctx, symbolsOf)), err)
	seen := map[string]bool{"": true}
	for _, from := range []string{tag, sb.PausedIn, sb.RolledBackTo, sb.SnapshotTag} {
		d.lineage(ctx, from, seen, note)
	}
	note("log", d.logOf(id), nil)
	return b.String(), errors.Join(append(errs, d.keep(id, b.String()))...)
}

// lineage notes each snapshot in the ancestry of a snapshot, with its receipt and whether its
// layers are intact. It skips snapshots in seen.
func (d *Daemon) lineage(ctx context.Context, tag string, seen map[string]bool, note func(string, any, error)) {
	for !seen[tag] {
		seen[tag] = true
		s, err := d.Client.Snapshot(ctx, tag)
		note("snapshot "+tag, s, err)
		if err != nil {
			return
		}
		r, err := d.Client.SnapshotReceipt(ctx, tag)
		if !client.IsNotFound(err) {
			note("receipt of "+tag, r, err)
		}
		v, err := d.verified(ctx, tag)
		note("layers of "+tag, v, err)
		if tag = ""; s.ParentTag != nil {
			tag = *s.ParentTag
		}
	}
}

// verified verifies a snapshot, as soon as its digests exist.
func (d *Daemon) verified(ctx context.Context, tag string) (v api.VerifyResult, err error) {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if v, err = d.Client.VerifySnapshot(ctx, tag, nil); client.CodeOf(err) != api.CodeConflict {
			break
		}
	}
	return v, err
}

// symbols returns the kernel symbols of a sandbox that answers.
func (d *Daemon) symbols(ctx context.Context, id string) guestdump.Symbols {
	if id == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r, err := d.Client.Exec(ctx, id, api.ExecRequest{Args: []string{"sh", "-c",
		"grep -i ' [tw] ' /proc/kallsyms | gzip -1 | base64"}, User: "root"})
	if err != nil || r.ExitCode != 0 {
		return nil
	}
	s, _ := guestdump.ReadSymbols(unpacked(r.Stdout))
	return s
}

// logOf returns the log lines that name a sandbox.
func (d *Daemon) logOf(id string) string {
	var out strings.Builder
	for line := range strings.Lines(d.wholeLog()) {
		if strings.Contains(line, id) || strings.Contains(line, "hang") {
			out.WriteString(line)
		}
	}
	return out.String()
}

func (d *Daemon) keep(id, text string) error {
	dir := os.Getenv(EvidenceVariable)
	if dir == "" {
		return nil
	}
	name := fmt.Sprintf("%s-%s.txt", id, time.Now().UTC().Format("20060102T150405"))
	return os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)
}

// unpacked returns a reader of base64-encoded gzip data.
func unpacked(s string) io.Reader {
	z, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(s)))
	if err != nil {
		return strings.NewReader("")
	}
	return z
}
