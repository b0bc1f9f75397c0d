package events

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// An ID consists of the number of the daemon's start, kept on disk, and 32 bits that count from there. So IDs
// grow from one daemon to the next regardless of the clock, and fit into a JSON number read as a double.
const (
	idBits  = 32
	maxBoot = 1<<21 - 1
)

// FirstAfterBoot counts a start of the daemon in a file. It returns the ID before this daemon's first event. The
// file is written in place, which needs no room on a full disk except the first time. The ID is valid even if
// FirstAfterBoot returns an error, but the next start may repeat it.
func FirstAfterBoot(path string) (last uint64, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return 1 << idBits, fmt.Errorf("count the daemon's starts: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	b, err := io.ReadAll(io.LimitReader(f, 64))
	if err != nil {
		return 1 << idBits, fmt.Errorf("count the daemon's starts: %w", err)
	}
	boot, damaged := bootOf(b)
	if boot++; boot > maxBoot {
		boot = 1
	}
	if _, err = f.WriteAt(fmt.Appendf(nil, "%020d\n", boot), 0); err == nil {
		err = f.Sync()
	}
	if err == nil && damaged {
		err = fmt.Errorf("count the daemon's starts: %s has no number: %w", path, fs.ErrInvalid)
	}
	return boot << idBits, err
}

// bootOf parses the file. An empty file is 0.
func bootOf(b []byte) (boot uint64, damaged bool) {
	text := strings.TrimSpace(string(b))
	if text == "" {
		return 0, false
	}
	boot, err := strconv.ParseUint(text, 10, 64)
	if err != nil || boot > maxBoot {
		return 0, true
	}
	return boot, false
}

func gapDetail(after, last uint64) map[string]string {
	return map[string]string{"after": strconv.FormatUint(after, 10), "last": strconv.FormatUint(last, 10),
		"reason": "the daemon has no events between these any more"}
}
