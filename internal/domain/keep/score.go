package keep

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/guest/agentproto/agentclient"
	"github.com/forkd/forkd/internal/leaf/guesttext"
)

const (
	// maxOutput is the number of bytes kept of a program's output and errors together.
	maxOutput = 256 << 10
	// maxLine is the number of bytes read of a file. A score is in the first line.
	maxLine = 4 << 10
	// maxProblem limits the text of a problem, in bytes.
	maxProblem = 200
	// grace is how much longer than the limit the answer of a guest may take.
	grace = 10 * time.Second
)

// score returns the entry of one sandbox, without its outcome unless it is gone.
func score(ctx context.Context, e Engine, id string, req Request) Entry {
	ctx, cancel := context.WithTimeoutCause(ctx, req.Timeout+grace,
		fmt.Errorf("no answer within %s", req.Timeout+grace))
	defer cancel()
	var text []byte
	var err error
	if req.File != "" {
		text, err = readFile(ctx, e, id, req.File)
	} else {
		text, err = runProgram(ctx, e, id, req)
	}
	s := Entry{ID: id}
	if err == nil {
		s.Score, err = number(text)
	}
	if err == nil {
		s.Scored = true
		return s
	}
	if errors.Is(err, sandbox.ErrNotFound) {
		s.Outcome = Gone
	}
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	s.Problem = guesttext.Clip(err.Error(), maxProblem)
	return s
}

// runProgram returns the output of the program, which must succeed.
func runProgram(ctx context.Context, e Engine, id string, req Request) ([]byte, error) {
	room := maxOutput
	res, err := e.Exec(ctx, id, sandbox.ExecRequest{Args: req.Args, Timeout: req.Timeout, Keep: func(n int) int {
		n = min(n, room)
		room -= n
		return n
	}})
	switch {
	case err != nil:
		return nil, err
	case res.TimedOut:
		return nil, fmt.Errorf("it took longer than %s", req.Timeout)
	case res.KilledBy != "":
		return nil, errors.New(res.KilledBy)
	case res.ExitCode != 0:
		return nil, failed(res)
	}
	return res.Stdout, nil
}

// failed describes a program that did not succeed, with the last line of its errors.
func failed(res sandbox.ExecResult) error {
	lines := strings.Split(strings.TrimSpace(string(res.Stderr)), "\n")
	if last := lines[len(lines)-1]; last != "" {
		return fmt.Errorf("exit code %d: %s", res.ExitCode, guesttext.Clip(last, maxProblem))
	}
	return fmt.Errorf("exit code %d", res.ExitCode)
}

// readFile returns the beginning of a file in the guest.
func readFile(ctx context.Context, e Engine, id, path string) ([]byte, error) {
	agent := agentclient.New(func(ctx context.Context) (net.Conn, error) { return e.DialAgent(ctx, id) })
	defer agent.Close()
	var b beginning
	_, err := agent.Download(ctx, path, "", &b)
	if err != nil && !b.full {
		return nil, err
	}
	return b.Bytes(), nil
}

// beginning keeps the first maxLine bytes, and then ends the transfer.
type beginning struct {
	bytes.Buffer
	full bool
}

func (b *beginning) Write(p []byte) (int, error) {
	n := min(len(p), maxLine-b.Len())
	b.Buffer.Write(p[:n])
	if b.Len() < maxLine {
		return n, nil
	}
	b.full = true
	return n, errors.New("that is enough")
}

// number reads the score from the first line of a text. NaN and infinities have no rank.
func number(text []byte) (float64, error) {
	line, _, _ := strings.Cut(string(text), "\n")
	line = strings.TrimSpace(line)
	if line == "" {
		return 0, errors.New("the first line is empty, want a number")
	}
	v, err := strconv.ParseFloat(line, 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("%s is not a number", guesttext.Clip(line, 80))
	}
	return v, nil
}
