package trust

import (
	"context"
	"io"
	"io/fs"
	"strings"
	"testing"
)

// guest is a file system of text files.
type guest struct {
	files   map[string]string
	uploads int
}

func (g *guest) Download(_ context.Context, path, user string, w io.Writer) (int64, error) {
	text, is := g.files[path]
	if !is || user != root {
		return 0, fs.ErrNotExist
	}
	n, err := io.WriteString(w, text)
	return int64(n), err
}

func (g *guest) Upload(_ context.Context, path, user string, _ fs.FileMode, r io.Reader) error {
	b, err := io.ReadAll(r)
	g.files[path] = string(b)
	g.uploads++
	return err
}

const one, two = "-----BEGIN CERTIFICATE-----\none\n-----END CERTIFICATE-----\n", "-----BEGIN CERTIFICATE-----\ntwo\n-----END CERTIFICATE-----\n"

func TestACertificateTakesThePlaceOfTheOneBefore(t *testing.T) {
	for what, files := range map[string]map[string]string{
		"of Debian":       {Bundle: "system\n"},
		"without an end":  {Bundle: "system"},
		"of Fedora":       {redhat: "system\n"},
		"of both":         {Bundle: "system\n", redhat: "system\n"},
		"one of nothing":  {},
		"an empty bundle": {Bundle: ""},
	} {
		g := &guest{files: files}
		had := len(files) > 0 && files[Bundle]+files[redhat] != ""
		_, both := files[redhat]
		for range 2 {
			if err := Install(t.Context(), g, one); err != nil {
				t.Fatal(err)
			}
		}
		if err := Install(t.Context(), g, two); err != nil {
			t.Fatal(err)
		}
		want := begin + two + end
		if had {
			want = "system\n" + want
		}
		if g.files[Bundle] != want || g.files[Own] != two || both && g.files[redhat] != want {
			t.Errorf("%s: %q, want %q", what, g.files, want)
		}
		changes := 2 // of each bundle; the certificate itself is written each time
		if both {
			changes = 4
		}
		if g.uploads != 3+changes {
			t.Errorf("%s: %d uploads", what, g.uploads)
		}
	}
}

func TestAHugeBundleIsNotRead(t *testing.T) {
	g := &guest{files: map[string]string{Bundle: strings.Repeat("x", maxBundle+1)}}
	if err := Install(t.Context(), g, one); err == nil || !strings.Contains(err.Error(), "more than 4 MiB") {
		t.Errorf("got %v", err)
	}
}
