package drain

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/forkd/forkd/internal/sys/durable"
)

const (
	format   = 1
	maxOrder = 4 << 10 // bytes of the file
)

// Order is an order to drain.
type Order struct {
	Mode  Mode      // the treatment of running sandboxes
	Since time.Time // when it was given
	// UntilRestart says that the order ends with the daemon. No file has it.
	UntilRestart bool
}

// orderFile is the whole file; see docs/inside/formats/drain.md.
type orderFile struct {
	Format int       `json:"format"`
	Mode   Mode      `json:"mode"`
	Since  time.Time `json:"since"`
}

// readOrder returns nil if there is no file.
func readOrder(path string) (*Order, error) {
	if path == "" {
		return nil, nil
	}
	b, err := durable.ReadFile(path, maxOrder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return decode(b)
}

func decode(b []byte) (*Order, error) {
	var f orderFile
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, err
	}
	if f.Format != format {
		return nil, fmt.Errorf("format is %d, want %d", f.Format, format)
	}
	if f.Mode != ModePause && f.Mode != ModeWait {
		return nil, fmt.Errorf("mode is %.20q, want pause or wait", string(f.Mode))
	}
	return &Order{Mode: f.Mode, Since: f.Since.UTC()}, nil
}

func writeOrder(path string, o Order) error {
	if path == "" || o.UntilRestart {
		return nil
	}
	b, err := json.Marshal(orderFile{format, o.Mode, o.Since})
	if err != nil {
		return err
	}
	if err := durable.Rewrite(path, append(b, '\n')); err != nil {
		return fmt.Errorf("write the order to drain: %w", err)
	}
	return nil
}

func removeOrder(path string) error {
	if path == "" {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the order to drain: %w", err)
	}
	return durable.SyncDir(filepath.Dir(path))
}
