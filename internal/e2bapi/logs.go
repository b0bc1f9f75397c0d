package e2bapi

import (
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxLogs is how many lines are told at once; maxConsole how much of a console is read.
const (
	maxLogs    = 1000
	maxConsole = 4 << 20
)

type logEntry struct {
	Time    time.Time         `json:"timestamp"`
	Message string            `json:"message"`
	Level   string            `json:"level"`
	Fields  map[string]string `json:"fields"`
}

// console is a guest's console as log entries. It has no times: all are of the start.
func (h usage) console(c call) ([]logEntry, error) {
	k, err := h.find(c)
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
	b, err := io.ReadAll(io.LimitReader(f, maxConsole))
	if err != nil {
		return nil, err
	}
	out := []logEntry{}
	for line := range strings.Lines(strings.ToValidUTF8(string(b), "\uFFFD")) {
		if line = strings.TrimRight(line, "\r\n"); line != "" {
			out = append(out, logEntry{k.rec.Started.UTC(), line, "info", map[string]string{}})
		}
	}
	return out, nil
}

// logsV2 is GET /v2/sandboxes/{id}/logs.
func (h usage) logsV2(c call) (answer, error) {
	all, err := h.console(c)
	if err != nil {
		return answer{}, err
	}
	q := c.URL.Query()
	limit := maxLogs
	if s := q.Get("limit"); s != "" {
		if limit, err = strconv.Atoi(s); err != nil || limit < 0 || limit > maxLogs {
			return answer{}, invalidf("limit: want 0 to %d", maxLogs)
		}
	}
	level := q.Get("level")
	if level != "" && !slices.Contains([]string{"debug", "info", "warn", "error"}, level) {
		return answer{}, invalidf("level: want debug, info, warn or error")
	}
	all = slices.DeleteFunc(all, func(e logEntry) bool {
		return !strings.Contains(e.Message, q.Get("search")) || level == "warn" || level == "error"
	})
	if q.Get("direction") == "backward" {
		slices.Reverse(all)
	}
	return answer{http.StatusOK, map[string]any{"logs": all[:min(limit, len(all))]}}, nil
}

// logs is GET /sandboxes/{id}/logs, of older clients.
func (h usage) logs(c call) (answer, error) {
	all, err := h.console(c)
	if err != nil {
		return answer{}, err
	}
	type line struct {
		Time time.Time `json:"timestamp"`
		Line string    `json:"line"`
	}
	all = all[max(0, len(all)-maxLogs):]
	lines := make([]line, 0, len(all))
	for _, e := range all {
		lines = append(lines, line{e.Time, e.Message})
	}
	return answer{http.StatusOK, map[string]any{"logs": lines, "logEntries": all}}, nil
}
