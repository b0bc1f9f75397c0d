package netdns

import (
	"golang.org/x/net/dns/dnsmessage"
)

// Codes of extended errors (RFC 8914).
const (
	noError    = -1
	otherError = 0
	blocked    = 15
	networkBad = 23
)

const (
	optionEDE  = 15 // RFC 8914 2
	badVersion = 16 // RFC 6891 9
	mostText   = 200
)

// reply is an answer before it is packed.
type reply struct {
	rcode     dnsmessage.RCode
	answers   []dnsmessage.Resource
	authority []dnsmessage.Resource // a SOA, for the validity of a negative answer
	ede       int                   // an extended error, or noError
	text      string                // of the extended error
}

func plain(rcode dnsmessage.RCode) reply { return reply{rcode: rcode, ede: noError} }

func failed(ede int, text string) reply {
	return reply{rcode: dnsmessage.RCodeServerFailure, ede: ede, text: text}
}

// pack returns the message for a query. A UDP answer that is too large loses its records and is
// marked as truncated, so the guest asks again over TCP.
func (r *reply) pack(q *query, tcp bool) []byte {
	msg, err := r.build(q, false)
	if err != nil {
		bad := failed(otherError, "the answer cannot be written")
		msg, err = bad.build(q, false)
	}
	if err == nil && (!tcp && len(msg) > q.size || len(msg) > maxMessage) {
		msg, err = r.build(q, true)
	}
	if err != nil {
		return nil
	}
	return msg
}

func (r *reply) build(q *query, truncated bool) ([]byte, error) {
	b := dnsmessage.NewBuilder(make([]byte, 0, plainSize), dnsmessage.Header{
		ID: q.id, Response: true, OpCode: q.opCode, RecursionDesired: q.desired, RecursionAvailable: true,
		Truncated: truncated, RCode: r.rcode & 0xf,
	})
	b.EnableCompression()
	if err := b.StartQuestions(); err != nil {
		return nil, err
	}
	if q.question.Name.Length > 0 {
		if err := b.Question(q.question); err != nil {
			return nil, err
		}
	}
	if !truncated {
		if err := r.addRecords(&b); err != nil {
			return nil, err
		}
	}
	if q.edns {
		if err := r.addOPT(&b); err != nil {
			return nil, err
		}
	}
	return b.Finish()
}

func (r *reply) addRecords(b *dnsmessage.Builder) error {
	if err := b.StartAnswers(); err != nil {
		return err
	}
	for i := range r.answers {
		if err := add(b, &r.answers[i]); err != nil {
			return err
		}
	}
	if err := b.StartAuthorities(); err != nil {
		return err
	}
	for i := range r.authority {
		if err := add(b, &r.authority[i]); err != nil {
			return err
		}
	}
	return nil
}

// add writes a record of the types that we rebuild. keep drops all other types.
func add(b *dnsmessage.Builder, r *dnsmessage.Resource) error {
	switch body := r.Body.(type) {
	case *dnsmessage.AResource:
		return b.AResource(r.Header, *body)
	case *dnsmessage.AAAAResource:
		return b.AAAAResource(r.Header, *body)
	case *dnsmessage.CNAMEResource:
		return b.CNAMEResource(r.Header, *body)
	case *dnsmessage.MXResource:
		return b.MXResource(r.Header, *body)
	case *dnsmessage.TXTResource:
		return b.TXTResource(r.Header, *body)
	case *dnsmessage.SRVResource:
		return b.SRVResource(r.Header, *body)
	case *dnsmessage.NSResource:
		return b.NSResource(r.Header, *body)
	case *dnsmessage.SOAResource:
		return b.SOAResource(r.Header, *body)
	case *dnsmessage.PTRResource:
		return b.PTRResource(r.Header, *body)
	}
	return nil
}

func (r *reply) addOPT(b *dnsmessage.Builder) error {
	if err := b.StartAdditionals(); err != nil {
		return err
	}
	var h dnsmessage.ResourceHeader
	if err := h.SetEDNS0(mostSize, r.rcode, false); err != nil {
		return err
	}
	var body dnsmessage.OPTResource
	if r.ede != noError {
		text := r.text
		if len(text) > mostText {
			text = text[:mostText]
		}
		data := append([]byte{byte(r.ede >> 8), byte(r.ede)}, text...)
		body.Options = []dnsmessage.Option{{Code: optionEDE, Data: data}}
	}
	return b.OPTResource(h, body)
}
