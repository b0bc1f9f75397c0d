package mcp

import (
	"bytes"
	"context"
	"strings"

	"github.com/forkd/forkd/client"
)

// watch looks for a text in a file that grows.
type watch struct {
	c    call
	in   waiting
	next int64  // offset of the bytes not read yet
	tail []byte // last bytes read
}

// look reads the new part of the file, and reports whether the marker is in it. A missing file is
// no error. A file that has become shorter is read anew.
func (w *watch) look(ctx context.Context) (bool, error) {
	for {
		part, err := client.Files{Client: w.c.client}.DownloadPart(ctx, w.in.SandboxID, w.in.Path, "", w.next, waitTail)
		switch {
		case isMissingFile(err):
			w.next, w.tail = 0, nil
			return false, nil
		case err != nil:
			return false, err
		case part.Size >= 0 && part.Size < w.next:
			w.next, w.tail = 0, nil
			continue
		}
		w.next += int64(len(part.Data))
		seen := append(w.tail, part.Data...)
		if bytes.Contains(seen, []byte(w.in.Marker)) {
			w.tail = seen
			return true, nil
		}
		w.tail = bytes.Clone(seen[max(0, len(seen)-max(len(w.in.Marker), waitShown)):])
		if len(part.Data) < waitTail {
			return false, nil
		}
	}
}

// isMissingFile distinguishes a missing file from a missing sandbox, which the daemon reports.
func isMissingFile(err error) bool {
	if !client.IsNotFound(err) {
		return false
	}
	return !fromDaemon(err)
}

// excerpt returns the end of what was read.
func (w *watch) excerpt() string {
	return strings.ToValidUTF8(string(w.tail[max(0, len(w.tail)-waitShown):]), "\uFFFD")
}
