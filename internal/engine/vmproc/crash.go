package vmproc

import (
	"io"
	"os"
	"path/filepath"
	"regexp"

	"github.com/forkd/forkd/internal/leaf/linetime"
)

// crashLine matches the lines with which Go's runtime begins the report of a crash. The traces behind them are long, and
// say little to a user.
var crashLine = regexp.MustCompile(`(?m)^(?:unexpected fault address|fatal error: |panic: |\[signal ).*$`)

const crashBytes = 1 << 20 // of the log that are searched

// lastWords returns the cause from the log of a VMM that has ended: the beginning of a crash's report, or the last lines.
func lastWords(dir string) string {
	path := filepath.Join(dir, vmmLog)
	if f, err := os.Open(path); err == nil {
		defer f.Close()
		if b, err := io.ReadAll(io.LimitReader(f, crashBytes)); err == nil {
			if line := crashLine.Find(linetime.Plain(b)); line != nil {
				return oneLine(line)
			}
		}
	}
	return TailLines(path, 3)
}
