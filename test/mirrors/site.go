package mirrors

import (
	"bytes"
	"net/http"
	"path"
	"time"
)

// The packages of each mirror. Hello prints Says, which it reads from Words.
const (
	Hello   = "forkd-hello"
	Words   = "forkd-words"
	Version = "1.0.0"
)

// age is the age of all timestamps: they must not be in the future by any clock.
const age = 24 * time.Hour

// site holds the served files by path.
type site map[string][]byte

func (s site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	content, ok := s[path.Clean(r.URL.Path)]
	if !ok {
		http.NotFound(w, r)
		return
	}
	http.ServeContent(w, r, path.Base(r.URL.Path), time.Time{}, bytes.NewReader(content))
}
