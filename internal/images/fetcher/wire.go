package fetcher

import (
	"time"

	"github.com/forkd/forkd/internal/store/hub"
	"github.com/forkd/forkd/internal/store/layer"
)

// Names in the directory of the process.
const (
	socketName = "control.sock"
	lockName   = "lock"
	logName    = "fetcher.log"
	loginsName = "logins.json"
)

// State is the state of one file.
type State struct {
	ID       layer.ID `json:"id"`
	Name     string   `json:"name"`
	Done     int64    `json:"done"`     // bytes of the blob that were fetched
	Total    int64    `json:"total"`    // bytes of the blob
	Complete bool     `json:"complete"` // whole and verified
	// Since is the beginning of an outage; it is zero if there is none.
	Since   time.Time `json:"since"`
	Reason  string    `json:"reason,omitempty"` // for the outage
	Waiting int       `json:"waiting"`          // reads that wait for content
	Failed  time.Time `json:"failed"`           // time of the last read that failed after the limit, or zero
	Lost    bool      `json:"lost"`             // the limit of the outage has passed
}

// addRequest registers a file that exists in the store.
type addRequest struct {
	ID     layer.ID    `json:"id"`
	Logins []hub.Login `json:"logins,omitempty"`
}

// startRequest begins the prefetch of files.
type startRequest struct {
	IDs []layer.ID `json:"ids"`
}

const maxRequest = 1 << 20 // bytes
