package procs

import "slices"

const (
	// keepBytes and keepPieces limit the kept output of one process. The number of pieces is
	// limited, too, because a process may change between its streams at every byte.
	keepBytes  = 64 << 10
	keepPieces = 1024
)

// backlog is the latest output of a process without listeners.
type backlog struct {
	pieces  []piece // oldest first; neighbours differ in their stream
	size    int
	dropped int64 // older bytes that were dropped
}

type piece struct {
	from stream
	b    []byte
}

func (l *backlog) add(from stream, b []byte) {
	if last := len(l.pieces) - 1; last >= 0 && l.pieces[last].from == from {
		l.pieces[last].b = append(l.pieces[last].b, b...)
	} else {
		l.pieces = append(l.pieces, piece{from, slices.Clone(b)})
	}
	l.size += len(b)
	for l.size > keepBytes || len(l.pieces) > keepPieces {
		l.dropSome()
	}
}

// dropSome removes the excess from the oldest piece, or all of the piece.
func (l *backlog) dropSome() {
	oldest := &l.pieces[0]
	n := len(oldest.b)
	if len(l.pieces) <= keepPieces {
		n = min(n, l.size-keepBytes)
	}
	oldest.b = oldest.b[n:]
	l.size -= n
	l.dropped += int64(n)
	if len(oldest.b) == 0 {
		l.pieces = slices.Delete(l.pieces, 0, 1)
	}
}
