package enginefake

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// GuestFile returns the path at which a fake VM stores a file of its guest.
func GuestFile(tokens string, pid int, path string) string {
	return filepath.Join(tokens, "files-"+strconv.Itoa(pid)+strings.ReplaceAll(path, "/", "_"))
}

// serveFile serves downloads and uploads, like an agent's /files.
func (f *fake) serveFile(w http.ResponseWriter, r *http.Request) {
	file := GuestFile(f.tokens, os.Getpid(), r.URL.Query().Get("path"))
	if r.Method == http.MethodPost {
		b, err := io.ReadAll(r.Body)
		if err == nil {
			err = os.WriteFile(file, b, 0o600)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
		return
	}
	b, err := os.ReadFile(file)
	if err != nil {
		http.Error(w, "no such file", http.StatusNotFound)
		return
	}
	_, _ = w.Write(b)
}
