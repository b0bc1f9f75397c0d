package netdns

import (
	"errors"

	"golang.org/x/net/dns/dnsmessage"
)

// query is the used part of a guest's message.
type query struct {
	id       uint16
	opCode   dnsmessage.OpCode
	desired  bool // recursion; echoed
	question dnsmessage.Question
	edns     bool // the guest supports EDNS0, so the answer uses it
	version  uint8
	size     int // the largest answer that the guest accepts over UDP
}

// Sizes of answers over UDP.
const (
	plainSize = 512  // RFC 1035 4.2.1
	mostSize  = 1232 // fits any link; https://www.dnsflagday.net/2020
)

// errSilent is the error for messages without an answer: answering an answer could go on for ever.
var errSilent = errors.New("not a query")

// parseQuery reads a guest's message. On any error except errSilent, the parts read so far are
// enough for a reply.
func parseQuery(msg []byte) (q query, err error) {
	q.size = plainSize
	var p dnsmessage.Parser
	h, err := p.Start(msg)
	if err != nil || h.Response {
		return q, errSilent
	}
	q.id, q.opCode, q.desired = h.ID, h.OpCode, h.RecursionDesired
	if h.OpCode != 0 {
		return q, errors.New("not a standard query")
	}
	if q.question, err = p.Question(); err != nil {
		return q, err
	}
	if _, err := p.Question(); !errors.Is(err, dnsmessage.ErrSectionDone) {
		return q, errors.New("more than one question")
	}
	return q, q.parseRest(&p)
}

// parseRest looks for EDNS0 after the question. A query has no other records.
func (q *query) parseRest(p *dnsmessage.Parser) error {
	if err := p.SkipAllAnswers(); err != nil {
		return err
	}
	if err := p.SkipAllAuthorities(); err != nil {
		return err
	}
	for {
		h, err := p.AdditionalHeader()
		if errors.Is(err, dnsmessage.ErrSectionDone) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Type == dnsmessage.TypeOPT {
			if q.edns {
				return errors.New("more than one OPT record") // RFC 6891 6.1.1
			}
			q.edns, q.version = true, uint8(h.TTL>>16)
			q.size = min(max(int(h.Class), plainSize), mostSize)
		}
		if err := p.SkipAdditional(); err != nil {
			return err
		}
	}
}
