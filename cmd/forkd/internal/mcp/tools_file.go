package mcp

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/forkd/internal/mcp/place"
)

func byteCount(n int64) string { return fmt.Sprintf("%d bytes", n) }

type reading struct {
	bySandbox
	Path   string `json:"path" jsonschema:"absolute path, or one relative to the user's home"`
	Offset int64  `json:"offset,omitempty" jsonschema:"first byte; negative counts from the end"`
	Limit  int64  `json:"limit,omitempty" jsonschema:"most bytes to read; absent: the server's limit"`
	User   string `json:"user,omitempty" jsonschema:"user to read as; absent: the image's"`
}

// content is a part of a file: text, or base64 if it is not UTF-8.
type content struct {
	Path          string  `json:"path"`
	Content       *string `json:"content,omitempty" jsonschema:"text, if it is UTF-8"`
	ContentBase64 *string `json:"content_base64,omitempty" jsonschema:"bytes in base64, if they are not UTF-8"`
	Bytes         int     `json:"bytes" jsonschema:"number of bytes read"`
	SizeBytes     *int64  `json:"size_bytes,omitempty" jsonschema:"size of the file; absent if the guest does not report it"`
	NextOffset    *int64  `json:"next_offset,omitempty" jsonschema:"offset of the rest; absent at the end"`
	Note          string  `json:"note,omitempty"`
}

type writing struct {
	bySandbox
	Path          string  `json:"path" jsonschema:"path of the file; missing directories are made"`
	Content       *string `json:"content,omitempty" jsonschema:"text to write; either this or content_base64"`
	ContentBase64 *string `json:"content_base64,omitempty" jsonschema:"bytes to write, in base64"`
	User          string  `json:"user,omitempty" jsonschema:"user to write as; absent: the image's"`
}

type written struct {
	Path  string `json:"path"`
	Bytes int    `json:"bytes"`
}

type listing struct {
	bySandbox
	Path string `json:"path" jsonschema:"directory"`
	User string `json:"user,omitempty" jsonschema:"user to list as; absent: the image's"`
}

type fileEntry struct {
	Name         string `json:"name"`
	Path         string `json:"path"`
	Type         string `json:"type" jsonschema:"file, directory, link or other"`
	SizeBytes    int64  `json:"size_bytes"`
	Mode         string `json:"mode" jsonschema:"permissions, such as rwxr-xr-x"`
	ModifiedUnix int64  `json:"modified_unix"`
	Target       string `json:"target,omitempty" jsonschema:"of a link"`
}

type files struct {
	Path    string      `json:"path"`
	Entries []fileEntry `json:"entries"`
	More    int         `json:"more,omitempty" jsonschema:"number of entries left out"`
}

// addFileTools adds the tools for files of sandboxes.
func addFileTools(r *registry) {
	add(r, tool{name: "read_file", title: "Read a file", about: "Read a file in a sandbox, or a part of it. " +
		"Bytes that are not UTF-8 come as base64.", effect: reads}, readFile)
	add(r, tool{name: "write_file", title: "Write a file", about: "Write a file in a sandbox; an existing file is " +
		"replaced when all of the content has arrived.", effect: destroys}, writeFile)
	add(r, tool{name: "list_files", title: "List a directory", about: "List the entries of a directory in a sandbox.",
		effect: reads}, listFiles)
	add(r, tool{name: "wait_for_text", title: "Wait for text in a file", about: "Wait until a file in a sandbox " +
		"contains a text, such as the line of a log about a server that is ready. found is false if the time runs out.",
		effect: reads}, waitForText)
}

func readFile(ctx context.Context, c call, in reading) (content, error) {
	limit := int64(c.opt.OutputBytes)
	if in.Limit < 0 {
		return content{}, invalid("limit is negative", "")
	}
	if in.Limit > 0 {
		limit = min(limit, in.Limit)
	}
	part, err := client.Files{Client: c.client}.DownloadPart(ctx, in.SandboxID, in.Path, in.User, in.Offset, limit)
	if err != nil {
		return content{}, err
	}
	out := content{Path: in.Path}
	begin := in.Offset
	if part.Size >= 0 {
		out.SizeBytes = &part.Size
		if begin < 0 {
			begin = max(0, part.Size+begin)
		}
	}
	data := part.Data
	if text := whole(data); int64(len(data)) == limit && len(text) > 0 && utf8.Valid(text) {
		data = text // the next part begins with the whole character
	}
	out.set(data)
	next := begin + int64(len(data))
	unknown := part.Size < 0 && int64(len(part.Data)) == limit
	if len(data) > 0 && (next < part.Size || unknown) {
		out.NextOffset = &next
		whole := place.Place{Kind: place.File, Sandbox: in.SandboxID, Path: "/" + strings.TrimPrefix(in.Path, "/")}
		out.Note = "there is more: read it with offset next_offset"
		if strings.HasPrefix(in.Path, "/") {
			out.Note += ", or the resource " + whole.String()
		}
	}
	return out, nil
}

func (c *content) set(data []byte) {
	c.Bytes = len(data)
	if utf8.Valid(data) {
		text := string(data)
		c.Content = &text
		return
	}
	text := base64.StdEncoding.EncodeToString(data)
	c.ContentBase64 = &text
}

func writeFile(ctx context.Context, c call, in writing) (written, error) {
	data, err := in.bytes()
	if err != nil {
		return written{}, err
	}
	err = c.client.Upload(ctx, in.SandboxID, in.Path, in.User, bytes.NewReader(data))
	return written{in.Path, len(data)}, err
}

func (w writing) bytes() ([]byte, error) {
	switch {
	case (w.Content == nil) == (w.ContentBase64 == nil):
		return nil, invalid("want one of content and content_base64", "")
	case w.Content != nil:
		return []byte(*w.Content), nil
	}
	data, err := base64.StdEncoding.DecodeString(*w.ContentBase64)
	if err != nil {
		return nil, invalid("content_base64 is not base64", "use the standard alphabet, with padding")
	}
	return data, nil
}

func listFiles(ctx context.Context, c call, in listing) (files, error) {
	all, err := client.Files{Client: c.client}.ListDir(ctx, in.SandboxID, in.Path, in.User)
	if err != nil {
		return files{}, err
	}
	entries := make([]fileEntry, 0, len(all))
	for _, f := range all {
		entries = append(entries, fileEntry{f.Name, f.Path, f.Type, f.Size, f.Mode.String()[1:], f.ModTime.Unix(), f.Target})
	}
	out, more := cut(entries)
	return files{in.Path, out, more}, nil
}

type waiting struct {
	bySandbox
	Path         string  `json:"path" jsonschema:"file to watch; it may not exist yet"`
	Marker       string  `json:"marker" jsonschema:"text to wait for"`
	TimeoutSecs  float64 `json:"timeout_secs,omitempty" jsonschema:"longest wait; 60 if absent, at most 3600"`
	PollInterval int     `json:"poll_interval_ms,omitempty" jsonschema:"time between looks, in milliseconds; 200 if absent"`
}

type waited struct {
	Found       bool   `json:"found"`
	ElapsedMS   int64  `json:"elapsed_ms"`
	LastExcerpt string `json:"last_excerpt" jsonschema:"end of the file, about 256 bytes"`
}

const (
	maxWait   = 3600 // seconds
	waitTail  = 64 << 10
	waitShown = 256
)

func waitForText(ctx context.Context, c call, in waiting) (waited, error) {
	if in.TimeoutSecs == 0 {
		in.TimeoutSecs = 60
	}
	if in.PollInterval == 0 {
		in.PollInterval = 200
	}
	switch {
	case in.Marker == "" || len(in.Marker) > waitTail/2:
		return waited{}, invalid(fmt.Sprintf("the marker has %d bytes, want 1 to %d", len(in.Marker), waitTail/2), "")
	case !(in.TimeoutSecs > 0 && in.TimeoutSecs <= maxWait):
		return waited{}, invalid(fmt.Sprintf("timeout_secs is %g, want up to %d", in.TimeoutSecs, maxWait), "")
	case in.PollInterval < 10 || in.PollInterval > 60000:
		return waited{}, invalid(fmt.Sprintf("poll_interval_ms is %d, want 10 to 60000", in.PollInterval), "")
	}
	return c.await(ctx, in, time.Now())
}

// await looks for the marker again and again. Each look reads what is new in the file, and as much
// before it as the marker is long.
func (c call) await(ctx context.Context, in waiting, began time.Time) (waited, error) {
	t := time.NewTicker(time.Duration(in.PollInterval) * time.Millisecond)
	defer t.Stop()
	end := time.NewTimer(time.Duration(in.TimeoutSecs * float64(time.Second)))
	defer end.Stop()
	w := watch{c: c, in: in}
	for {
		found, err := w.look(ctx)
		elapsed := time.Since(began).Milliseconds()
		if err != nil || found {
			return waited{found, elapsed, w.excerpt()}, err
		}
		c.tell(float64(elapsed), in.TimeoutSecs*1000, "waiting for text in "+in.Path)
		select {
		case <-ctx.Done():
			return waited{}, context.Cause(ctx)
		case <-end.C:
			return waited{false, elapsed, w.excerpt()}, nil
		case <-t.C:
		}
	}
}
