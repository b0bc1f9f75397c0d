package e2bapi

import (
	"bufio"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forkd/forkd/internal/api/reply"
	"github.com/forkd/forkd/internal/leaf/linetime"
	"github.com/forkd/forkd/internal/leaf/membudget"
)

// maxLogs is the largest number of lines in an answer. maxConsole limits the part of a console that
// is read, and maxLogLine the part of a line in one entry, in bytes.
const (
	maxLogs    = 1000
	maxConsole = 4 << 20
	maxLogLine = 64 << 10
)

// entryCost is the memory for an entry without its text.
const entryCost = 64

type logEntry struct {
	Time    time.Time         `json:"timestamp"`
	Message string            `json:"message"`
	Level   string            `json:"level"`
	Fields  map[string]string `json:"fields"`
}

// noFields is the empty set of fields of every entry.
var noFields = map[string]string{}

// asked selects lines of a console.
type asked struct {
	limit  int
	newest bool // the newest lines, still in ascending order
	search string
	none   bool
}

// console returns lines of a guest's console as log entries. A line without a time, of a VM that an
// older daemon made, has the time of the line before, or of the start. It reads line by line and charges the lines it stores.
func (u usage) console(c call, want asked) ([]logEntry, error) {
	k, err := u.h.find(c)
	if err != nil {
		return nil, err
	}
	f, err := c.engine.Console(k.info.ID)
	if isNotFound(err) {
		return []logEntry{}, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	out, account := []logEntry{}, membudget.From(c.ctx)
	if want.none || want.limit == 0 {
		return out, nil
	}
	at := k.rec.Started.UTC()
	in := bufio.NewReaderSize(io.LimitReader(f, maxConsole), maxLogLine)
	for want.newest || len(out) < want.limit {
		b, _, err := in.ReadLine() // longer lines come in parts
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		t, b, ok := linetime.Cut(b)
		if ok {
			at = t
		}
		line := strings.ToValidUTF8(strings.TrimRight(string(b), "\r\n"), "\uFFFD")
		if line == "" || !strings.Contains(line, want.search) {
			continue
		}
		if !account.Charge(entryCost + int64(len(line))) {
			return nil, reply.Full()
		}
		if len(out) == want.limit {
			account.Release(entryCost + int64(len(out[0].Message)))
			out[0] = logEntry{}
			out = out[1:] // append sometimes moves the remaining entries
		}
		out = append(out, logEntry{at, line, "info", noFields})
	}
	return out, nil
}

// logsV2 is GET /v2/sandboxes/{id}/logs.
func (u usage) logsV2(c call) (answer, error) {
	q := c.URL.Query()
	want := asked{limit: maxLogs, newest: q.Get("direction") == "backward", search: q.Get("search")}
	if s := q.Get("limit"); s != "" {
		var err error
		if want.limit, err = strconv.Atoi(s); err != nil || want.limit < 0 || want.limit > maxLogs {
			return answer{}, invalidf("limit: want 0 to %d", maxLogs)
		}
	}
	level := q.Get("level")
	if level != "" && !slices.Contains([]string{"debug", "info", "warn", "error"}, level) {
		return answer{}, invalidf("level: want debug, info, warn or error")
	}
	want.none = level == "warn" || level == "error"
	all, err := u.console(c, want)
	if err != nil {
		return answer{}, err
	}
	if want.newest {
		slices.Reverse(all)
	}
	return answer{http.StatusOK, map[string]any{"logs": all}}, nil
}

// logs is GET /sandboxes/{id}/logs, for older clients.
func (u usage) logs(c call) (answer, error) {
	all, err := u.console(c, asked{limit: maxLogs, newest: true})
	if err != nil {
		return answer{}, err
	}
	type line struct {
		Time time.Time `json:"timestamp"`
		Line string    `json:"line"`
	}
	lines := make([]line, 0, len(all))
	for _, e := range all {
		lines = append(lines, line{e.Time, e.Message})
	}
	return answer{http.StatusOK, map[string]any{"logs": lines, "logEntries": all}}, nil
}
