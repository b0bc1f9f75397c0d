package preload

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/forkd/forkd/internal/kube/placement"
	"github.com/forkd/forkd/internal/leaf/ellipsis"
)

// Node is what is known about a node at one moment.
type Node struct {
	// Name and URL are those of the list of nodes.
	Name, URL string
	// Seen is the time of the facts.
	Seen time.Time
	// Recent reports facts that still count, Up an answer to the last question.
	Recent, Up bool
	// Takes reports a node that is not being drained.
	Takes bool
	// Selected reports a node with the wanted labels.
	Selected bool
	// Has reports a node that lists the snapshot, of so many Bytes. More reports a list that is not complete.
	Has, More bool
	Bytes     int64
	// CPU is the maker of its processor, or empty.
	CPU string
	// DiskFree and DiskTotal are bytes of its file system. 0 in all means unknown.
	DiskFree, DiskTotal int64
}

// usable reports whether the node may count.
func (n Node) usable() bool { return n.Selected && n.Takes && n.Recent }

func (n Node) lacksSpace(bytes int64) bool {
	return n.DiskTotal > 0 && float64(n.DiskFree-bytes) < placement.DiskFloor*float64(n.DiskTotal)
}

// State is the state of a node in a Report.
type State string

// States, in the order of a Report. Only Ready counts.
const (
	Ready       State = "Ready"
	Copying     State = "Copying"
	Failed      State = "Failed"
	Draining    State = "Draining"
	Silent      State = "Silent"
	NotSelected State = "NotSelected"
)

var order = []State{Ready, Copying, Failed, Draining, Silent, NotSelected}

// Row is a node in a Report. Code and Message are those of a failure.
type Row struct {
	Name          string
	State         State
	Code, Message string
}

// Reasons of a Report.
const (
	Distributed   = "Distributed"
	InCopy        = "Copying"
	CopyFailed    = "CopyFailed"
	TooFewNodes   = "TooFewNodes"
	NoSource      = "NoSource"
	maxRows       = 64
	maxText       = 256 // bytes of a node's error
	namedFailures = 3   // in a message
)

// Report is the state of a snapshot's distribution.
type Report struct {
	// Rows are at most 64 nodes that have the snapshot, copy it, or have failed.
	Rows []Row
	// Ready is the number of nodes that count.
	Ready int
	// Reason is one of the constants. Message explains it.
	Reason, Message string
	// Waits reports copies that wait for a turn.
	Waits bool
}

// view is a look at all nodes and at the copies of one snapshot.
type view struct {
	ready   int
	rows    []Row
	takers  []Node // that may be asked, in the order of the snapshot
	holders []Node // that send the snapshot
	failed  []Row  // that may be asked again later
	counts  map[string]int
}

// look sorts the nodes by what they can do for the snapshot.
func (s *spread) look(id string, nodes []Node, now time.Time) view {
	v := view{counts: map[string]int{}}
	bytes := int64(0)
	for _, n := range nodes {
		bytes = max(bytes, n.Bytes)
	}
	for _, n := range nodes {
		switch has, running := s.has(n), s.running[n.Name] != nil; {
		case running:
			v.row(n.Name, Copying)
		case has:
			if n.Up {
				v.holders = append(v.holders, n)
			}
			v.holder(n)
		default:
			v.other(n, s.failures[n.Name], bytes, now)
		}
	}
	// A snapshot rarely runs on a processor of another maker. The node decides, but it is asked last.
	other := func(n Node) int {
		if slices.ContainsFunc(v.holders, func(h Node) bool { return h.CPU == n.CPU }) {
			return 0
		}
		return 1
	}
	failures := func(n Node) int {
		if f := s.failures[n.Name]; f != nil {
			return f.times
		}
		return 0
	}
	slices.SortFunc(v.takers, func(a, b Node) int {
		return cmp.Or(cmp.Compare(failures(a), failures(b)), cmp.Compare(other(a), other(b)),
			cmp.Compare(Rank(id, a.Name), Rank(id, b.Name)))
	})
	slices.SortStableFunc(v.rows, func(a, b Row) int {
		return cmp.Compare(slices.Index(order, a.State), slices.Index(order, b.State))
	})
	v.rows = v.rows[:min(len(v.rows), maxRows)]
	return v
}

func (v *view) row(name string, state State) { v.rows = append(v.rows, Row{Name: name, State: state}) }

func (v *view) holder(n Node) {
	switch {
	case !n.Recent:
		v.row(n.Name, Silent)
	case !n.Takes:
		v.row(n.Name, Draining)
	case !n.Selected:
		v.row(n.Name, NotSelected)
	default:
		v.row(n.Name, Ready)
		v.ready++
	}
}

// other enters a node without the snapshot.
func (v *view) other(n Node, f *failure, bytes int64, now time.Time) {
	switch {
	case !n.Selected:
		v.counts["not selected"]++
		return
	case !n.Recent || !n.Up:
		v.counts["silent"]++
	case !n.Takes:
		v.counts["draining"]++
	case n.lacksSpace(bytes):
		v.counts["short of disk space"]++
	case f == nil || !now.Before(f.until):
		v.takers = append(v.takers, n)
	default:
		v.counts["failed"]++
		v.failed = append(v.failed, Row{Name: n.Name, State: Failed, Code: f.code, Message: f.text})
	}
	if f != nil {
		v.rows = append(v.rows, Row{Name: n.Name, State: Failed, Code: f.code, Message: f.text})
	}
}

// peers returns the URLs of the nodes that send the snapshot to a node, at most 16. Each node has an order of its own,
// and draining nodes are the last.
func (v *view) peers(to string) (urls []string) {
	list := slices.Clone(v.holders)
	slices.SortFunc(list, func(a, b Node) int {
		if a.Takes != b.Takes {
			return map[bool]int{true: -1, false: 1}[a.Takes]
		}
		return cmp.Compare(Rank(to, a.Name), Rank(to, b.Name))
	})
	for _, n := range list[:min(len(list), mostPeers)] {
		urls = append(urls, n.URL)
	}
	return urls
}

// report explains what is missing. running is the number of copies that can still count.
func (v *view) report(want, running int, waits bool) Report {
	r := Report{Rows: v.rows, Ready: v.ready, Waits: waits}
	switch {
	case v.ready >= want:
		r.Reason, r.Waits = Distributed, false
	case len(v.holders) == 0:
		r.Reason, r.Message = NoSource, "no node that answers has the snapshot"
	case running > 0 || waits:
		r.Reason, r.Message = InCopy, fmt.Sprintf("%d of %d nodes have the snapshot", v.ready, want)
	case len(v.failed) > 0:
		var why []string
		for _, f := range v.failed[:min(len(v.failed), namedFailures)] {
			why = append(why, f.Name+": "+f.Message)
		}
		r.Reason = CopyFailed
		r.Message = fmt.Sprintf("%d of %d nodes have the snapshot; %d could not copy it: %s", v.ready, want,
			len(v.failed), strings.Join(why, "; "))
	default:
		var why []string
		for reason, n := range v.counts {
			why = append(why, fmt.Sprintf("%d %s", n, reason))
		}
		slices.Sort(why)
		if len(why) == 0 {
			why = []string{"none"}
		}
		r.Reason = TooFewNodes
		r.Message = fmt.Sprintf("%d of %d nodes have the snapshot; others: %s", v.ready, want, strings.Join(why, ", "))
	}
	return r
}

// Rank gives the nodes an order for each snapshot.
func Rank(id, name string) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, id+" "+name)
	return h.Sum64()
}

func clip(text string) string { return ellipsis.Clip(text, maxText) }
