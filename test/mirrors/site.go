package mirrors

import (
	"bytes"
	"net/http"
	"path"
	"time"
)

// The packages of each mirror. Hello prints Says, which it has from Words.
const (
	Hello   = "forkd-hello"
	Words   = "forkd-words"
	Version = "1.0.0"
)

// age is that of all that is made: no clock may find it to be of the future.
const age = 24 * time.Hour

// site is files by their paths, as they are served.
type site map[string][]byte

func (s site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	content, ok := s[path.Clean(r.URL.Path)]
	if !ok {
		http.NotFound(w, r)
		return
	}
	http.ServeContent(w, r, path.Base(r.URL.Path), time.Time{}, bytes.NewReader(content))
}
