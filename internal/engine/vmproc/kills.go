package vmproc

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/guesttext"
	"github.com/forkd/forkd/internal/leaf/linetime"
	"github.com/forkd/forkd/internal/leaf/oomline"
	"github.com/forkd/forkd/internal/vm/vmctl/client"
)

// Limits of a scan of a console.
const (
	maxScan     = 1 << 20 // bytes; a VMM keeps less
	maxKills    = 8       // returned per scan
	maxKillLine = 200     // bytes of a line that are compared
)

// killScan is the state of the console's file at the last scan.
type killScan struct {
	mu   sync.Mutex // guards the fields below; taken last
	size int64
	at   time.Time
}

// Kills returns processes killed by the guest's kernel for lack of memory that the console reports
// after the line in after, oldest first. It returns the last maxKills of them, and the number of
// earlier ones. An unchanged console is not read.
func (m *VM) Kills(after string) (kills []sandbox.OOM, earlier int) {
	m.kills.mu.Lock()
	defer m.kills.mu.Unlock()
	name := filepath.Join(m.Dir, client.ConsoleLog)
	st, err := os.Lstat(name)
	if err != nil || !st.Mode().IsRegular() || st.Size() == m.kills.size && st.ModTime().Equal(m.kills.at) {
		return nil, 0
	}
	text, err := readConsole(name)
	if err != nil {
		return nil, 0
	}
	m.kills.size, m.kills.at = st.Size(), st.ModTime()
	kills = killsIn(linetime.Plain(text), after, st.ModTime().UTC())
	earlier = max(0, len(kills)-maxKills)
	return kills[earlier:], earlier
}

func readConsole(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxScan))
}

// killsIn returns the kills in complete lines. Lines have the kernel's time, so a line occurs once:
// kills up to the one in after are known already. A console that has lost that line has only later
// ones.
func killsIn(text []byte, after string, at time.Time) (kills []sandbox.OOM) {
	for line := range bytes.Lines(text) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break
		}
		pid, name, ok := oomline.Parse(line)
		if !ok {
			continue
		}
		k := sandbox.OOM{PID: pid, Process: guesttext.Of(name).String(), At: at,
			Line: guesttext.Clip(string(bytes.TrimSpace(line)), maxKillLine)}
		if kills = append(kills, k); k.Line == after {
			kills = kills[:0]
		}
	}
	return kills
}
