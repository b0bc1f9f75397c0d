package ui

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"sync"
)

//go:embed dist
var built embed.FS

// Path is the path of the page.
const Path = "/ui/"

// security are the headers of the page. Styles may be inline because the terminal sets colours so.
var security = map[string]string{
	"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; " +
		"img-src 'self' data:; connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; " +
		"frame-ancestors 'none'",
	"X-Content-Type-Options":       "nosniff",
	"Referrer-Policy":              "no-referrer",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Cache-Control":                "no-cache", // with the tag: unchanged files are not sent again
}

// file is a file of the page.
type file struct {
	content []byte
	kind    string // its media type
	tag     string
}

// files returns the page's files by their paths below Path.
var files = sync.OnceValue(func() map[string]file {
	all := map[string]file{}
	err := fs.WalkDir(built, "dist", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := built.ReadFile(name)
		sum := sha256.Sum256(b)
		kind := mime.TypeByExtension(path.Ext(name))
		if path.Ext(name) == ".js" { // the host's table may have another one
			kind = "text/javascript; charset=utf-8"
		}
		all[strings.TrimPrefix(name, "dist/")] = file{b, kind, `"` + hex.EncodeToString(sum[:16]) + `"`}
		return err
	})
	if err != nil {
		panic(err) // the files are part of the program
	}
	return all
})

// serveFile answers with a file of the page. It reports whether the path is one.
func serveFile(w http.ResponseWriter, r *http.Request, name string) bool {
	if name == "" {
		name = "index.html"
	}
	f, ok := files()[name]
	if !ok {
		return false
	}
	h := w.Header()
	for key, value := range security {
		h.Set(key, value)
	}
	h.Set("ETag", f.tag)
	if r.Header.Get("If-None-Match") == f.tag {
		w.WriteHeader(http.StatusNotModified)
		return true
	}
	h.Set("Content-Type", f.kind)
	_, _ = w.Write(f.content) // the client may be gone
	return true
}
