//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/ui"
	"github.com/forkd/forkd/internal/api/auditing"
	"github.com/forkd/forkd/internal/domain/audit"
	"github.com/forkd/forkd/internal/domain/events"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/undo"
)

// auditFlags set the path and the size of the audit log.
type auditFlags struct {
	file    string
	fileMiB int
	files   int
}

func (o *auditFlags) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.file, "audit-log", "",
		"append each request to the audit log `FILE`, as hash-chained JSON lines; none: disable (see forkd audit)")
	f.IntVar(&o.fileMiB, "audit-log-size", audit.DefaultMaxBytes>>20,
		"rotate the audit log at `MIB`")
	f.IntVar(&o.files, "audit-log-files", audit.DefaultKeep,
		"keep `N` rotated files of the audit log")
}

// auditNone disables the audit log where it is enabled by default.
const auditNone = "none"

func (o *auditFlags) complete() (err error) {
	if o.fileMiB < 1 || o.fileMiB > 1<<20 || o.files < 1 || o.files > 100_000 {
		return exit.UsageError{Err: fmt.Errorf(
			"--audit-log-size is %d and --audit-log-files is %d, want at least 1 of each", o.fileMiB, o.files)}
	}
	switch o.file {
	case auditNone:
		o.file = ""
	case "":
	default:
		o.file, err = filepath.Abs(o.file)
	}
	return err
}

// auditPatience limits the wait for the audit log's disk when the daemon ends.
const auditPatience = 5 * time.Second

// open opens the log if it is enabled. Otherwise it returns nil.
func (o auditFlags) open(ctx context.Context, run string, log *slog.Logger, opened *undo.Stack) (auditing.Log, error) {
	if o.file == "" {
		if !ui.Terminal(os.Stderr) {
			exit.OnHangup(ctx, func() {}) // there is no file to open again
		}
		return nil, nil
	}
	l, err := audit.Open(audit.Config{
		Path: o.file, MaxBytes: int64(o.fileMiB) << 20, Keep: o.files, Log: log,
		// forkd-net logs the verdicts on flows itself, because it outlives this daemon.
		Opened: audit.Entry{Note: fmt.Sprintf("forkd %s; network verdicts: %s", version,
			filepath.Join(run, "net", "audit.log"))},
	})
	if err != nil {
		return nil, fmt.Errorf("open audit log: %w", err)
	}
	if !ui.Terminal(os.Stderr) { // otherwise the terminal was closed
		exit.OnHangup(ctx, l.Reopen)
	}
	opened.Push(func() {
		if err := l.Close(auditPatience); err != nil {
			log.Error("close audit log", "error", err)
		}
	})
	return l, nil
}

// acting returns a function for recording actions without a request in the audit log.
func acting(log auditing.Log, server *apiServer) sandbox.Acts {
	if log == nil {
		return func(sandbox.Act) {}
	}
	return func(a sandbox.Act) {
		e := audit.Entry{Action: a.Action, Result: audit.OK, Principal: a.By, Key: a.Of.Kin.Key,
			KeyName: server.keyName(a.Of.Kin.Key), Tenant: a.Of.Owner, Sandbox: a.Of.ID, Snapshot: a.Of.SnapshotTag,
			Count: a.Count, Object: a.Why, LatencyUS: a.Took.Microseconds()}
		switch {
		case errors.Is(a.Err, sandbox.ErrQuota), errors.Is(a.Err, sandbox.ErrForbidden):
			e.Result, e.Error = audit.Refused, a.Err.Error()
		case a.Err != nil:
			e.Result, e.Error = audit.Failed, a.Err.Error()
		}
		log.Add(e)
	}
}

// openEvents opens the event log. Its IDs continue from the last daemon's.
func openEvents(data string, log *slog.Logger) *events.Log {
	last, err := events.FirstAfterBoot(filepath.Join(data, "events.boot"))
	if err != nil {
		log.Warn("the next daemon may give the same IDs to its events", "error", err)
	}
	return events.New(last, 0, time.Now)
}

// telling returns a function for adding the engine's events to the log.
func telling(l *events.Log) sandbox.Events {
	return func(kind, id string, detail map[string]string) {
		set := sandbox.TakeLabels(detail)
		e := events.Event{Kind: kind, Labels: set, Sandbox: detail[sandbox.EventKeySandbox],
			Snapshot: detail[sandbox.EventKeySnapshot], Owner: detail[sandbox.EventKeyOwner],
			Principal: detail[sandbox.EventKeyPrincipal], Detail: detail}
		if strings.HasPrefix(kind, "sandbox.") || strings.HasPrefix(kind, "service.") {
			e.Sandbox = id
		} else {
			e.Snapshot = id
		}
		for _, key := range []string{sandbox.EventKeySandbox, sandbox.EventKeySnapshot, sandbox.EventKeyOwner,
			sandbox.EventKeyPrincipal} {
			delete(detail, key)
		}
		l.Add(e)
	}
}
