package client_test

import (
	"bytes"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
)

func TestPartsOfAFile(t *testing.T) {
	_, c, id := sandbox(t, nil)
	f := client.Files{Client: c}
	if err := c.Upload(t.Context(), id, "/tmp/f", "", bytes.NewReader([]byte("0123456789"))); err != nil {
		t.Fatal(err)
	}
	for _, p := range []struct {
		offset, limit int64
		want          string
	}{{0, 4, "0123"}, {8, 4, "89"}, {-3, 2, "78"}, {-99, 3, "012"}, {10, 1, ""}, {1 << 40, 1, ""}} {
		got, err := f.DownloadPart(t.Context(), id, "/tmp/f", "", p.offset, p.limit)
		if err != nil || string(got.Data) != p.want || got.Size != 10 {
			t.Errorf("%d from %d: %q of %d, %v; want %q", p.limit, p.offset, got.Data, got.Size, err, p.want)
		}
	}
	if _, err := f.DownloadPart(t.Context(), id, "/tmp/f", "", 0, 0); client.CodeOf(err) != api.CodeInvalid {
		t.Errorf("no bytes: %v", err)
	}
	if _, err := f.DownloadPart(t.Context(), id, "/none", "", 0, 1); !client.IsNotFound(err) {
		t.Errorf("a missing file: %v", err)
	}
	all, err := f.ListDir(t.Context(), id, "/tmp", "")
	if err != nil || len(all) != 1 || all[0].Name != "f" || all[0].Type != "file" || all[0].Path != "/tmp/f" {
		t.Errorf("the directory has %+v, %v", all, err)
	}
}
