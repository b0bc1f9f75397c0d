package forkcmd

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"
	"unicode/utf8"

	"github.com/forkd/forkd/internal/guest/agentproto/forkwire"
)

// waiting is one run of forkd-wait.
type waiting struct {
	command
	ids      []string
	deadline time.Time // if zero, none
	results  string    // directory; may be empty
	json     bool
	any      bool
}

func (c command) wait(args []string) (int, error) {
	w := waiting{command: c}
	fs := flag.NewFlagSet(waitName, flag.ContinueOnError)
	limit := fs.Duration("timeout", 0, "how long to wait for all; 0 is for ever")
	fs.StringVar(&w.results, "results", "", "folder to put each child's result in, as INDEX-ID")
	fs.BoolVar(&w.json, "json", false, "print a JSON object for each child, its result included")
	fs.BoolVar(&w.any, "any", false, "return after the first")
	var err error
	if w.ids, err = c.parse(fs, waitName+" [ID...] [--any] [--timeout 30s] [--results DIR] [--json]", args); err != nil {
		return 0, err
	}
	if *limit < 0 {
		return 0, usagef("the timeout is %s", *limit)
	}
	if *limit > 0 {
		w.deadline = time.Now().Add(*limit)
	}
	if w.results != "" {
		if err := os.MkdirAll(w.results, 0o755); err != nil {
			return 0, err
		}
	}
	return w.all()
}

// all collects children until none is left.
func (w *waiting) all() (int, error) {
	code, got := exitOK, 0
	for {
		end, err := w.one()
		var e *forkwire.Error
		if errors.As(err, &e) && e.Code == forkwire.NoChildren && got > 0 {
			return code, nil
		}
		if err != nil {
			return 0, err
		}
		got++
		if end.Status != forkwire.Exited || end.Code != 0 {
			code = exitPartial
		}
		if w.any {
			return code, nil
		}
	}
}

func (w *waiting) one() (forkwire.Ended, error) {
	req := forkwire.Request{Op: forkwire.OpWait, IDs: w.ids}
	if !w.deadline.IsZero() {
		req.TimeoutMS = max(1, time.Until(w.deadline).Milliseconds())
	}
	var end forkwire.Ended
	_, err := w.call(req, nil, func(a forkwire.Answer, result []byte) error {
		if a.Ended == nil {
			return errors.New("the agent's answer names no child")
		}
		end = *a.Ended
		return w.show(end, result)
	})
	return end, err
}

// show stores the result and prints the line, before the host forgets both.
func (w *waiting) show(end forkwire.Ended, result []byte) error {
	if w.results != "" {
		name := filepath.Join(w.results, fmt.Sprintf("%d-%s", end.Index, filepath.Base(end.ID)))
		if err := os.WriteFile(name, result, 0o644); err != nil {
			return fmt.Errorf("keep the result: %w", err)
		}
	}
	if w.json {
		return json.NewEncoder(w.stdout).Encode(newEndedJSON(end, result))
	}
	how := fmt.Sprint(end.Code)
	if end.Status != forkwire.Exited {
		how = "-"
	}
	_, err := fmt.Fprintf(w.stdout, "%d\t%s\t%s\t%s\t%d\t%s\n",
		end.Index, end.ID, end.Status, how, len(result), end.Reason)
	return err
}

// endedJSON is the output of --json. A result with invalid UTF-8 is in ResultRaw, as base64.
type endedJSON struct {
	forkwire.Ended
	Result    string `json:"result"`
	ResultRaw []byte `json:"result_raw,omitempty"`
}

func newEndedJSON(end forkwire.Ended, result []byte) endedJSON {
	if utf8.Valid(result) {
		return endedJSON{Ended: end, Result: string(result)}
	}
	return endedJSON{Ended: end, ResultRaw: result}
}
