package netdns

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// Client is an Upstream that asks the host's own resolvers over UDP. It uses TCP if an answer is
// too large or may be forged.
type Client struct {
	Servers func() []netip.AddrPort // read again for each question
	// Try is the time limit of one server over UDP. Zero means 1.5 s.
	Try time.Duration
}

var _ Upstream = (*Client)(nil)

const (
	defaultTry = 1500 * time.Millisecond
	rounds     = 2 // passes through all servers
)

// errLetters is the error for an answer with another case of letters than the question.
var errLetters = errors.New("the answer has other letters than the question")

// Ask asks one server after another, until one returns an answer other than a server failure.
func (c *Client) Ask(ctx context.Context, q dnsmessage.Question) (*dnsmessage.Message, error) {
	err := errors.New("the host has no resolver")
	var last *dnsmessage.Message
	for range rounds {
		for _, server := range c.Servers() {
			var m *dnsmessage.Message
			if m, err = c.askOne(ctx, server, q); err == nil {
				if m.RCode == dnsmessage.RCodeSuccess || m.RCode == dnsmessage.RCodeNameError {
					return m, nil
				}
				last = m
			}
			if ctx.Err() != nil {
				return nil, fmt.Errorf("%s: %w", server, context.Cause(ctx))
			}
		}
		if last != nil { // a second attempt would return the same failure
			return last, nil
		}
	}
	return nil, err
}

func (c *Client) askOne(
	ctx context.Context, server netip.AddrPort, q dnsmessage.Question,
) (*dnsmessage.Message, error) {
	try := c.Try
	if try == 0 {
		try = defaultTry
	}
	one, cancel := context.WithTimeout(ctx, try)
	defer cancel()
	m, err := exchange(one, "udp", server, q)
	if err == nil && !m.Truncated {
		return m, nil
	}
	if err != nil && !errors.Is(err, errLetters) {
		return nil, err
	}
	overTCP, cancel := context.WithTimeout(ctx, 2*try)
	defer cancel()
	return exchange(overTCP, "tcp", server, q)
}

// exchange asks once, from a random port chosen by the kernel.
func exchange(
	ctx context.Context, network string, server netip.AddrPort, q dnsmessage.Question,
) (*dnsmessage.Message, error) {
	asked, err := newQuestion(q)
	if err != nil {
		return nil, err
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, server.String())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	m, err := asked.over(conn, network == "tcp")
	if err != nil {
		return nil, fmt.Errorf("%s over %s: %w", server, network, err)
	}
	m.Questions = []dnsmessage.Question{q}
	return m, nil
}

// question is a question on the network. Its ID and the case of its letters are random, so an
// attacker who does not see it can hardly answer it.
type question struct {
	id  uint16
	q   dnsmessage.Question
	msg []byte
}

func newQuestion(q dnsmessage.Question) (*question, error) {
	var seed [2 + 32]byte
	if _, err := rand.Read(seed[:]); err != nil {
		return nil, err
	}
	a := &question{id: binary.BigEndian.Uint16(seed[:2]), q: q}
	a.q.Name = mixCase(q.Name, seed[2:])
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: a.id, RecursionDesired: true})
	if err := b.StartQuestions(); err != nil {
		return nil, err
	}
	if err := b.Question(a.q); err != nil {
		return nil, err
	}
	if err := b.StartAdditionals(); err != nil {
		return nil, err
	}
	var h dnsmessage.ResourceHeader
	if err := h.SetEDNS0(mostSize, 0, false); err != nil {
		return nil, err
	}
	if err := b.OPTResource(h, dnsmessage.OPTResource{}); err != nil {
		return nil, err
	}
	var err error
	a.msg, err = b.Finish()
	return a, err
}

// mixCase sets the case of each letter by one bit.
func mixCase(n dnsmessage.Name, bits []byte) dnsmessage.Name {
	for i := range int(n.Length) {
		c := n.Data[i] | 0x20
		if c >= 'a' && c <= 'z' {
			n.Data[i] = c &^ (bits[i/8%len(bits)] >> (i % 8) & 1 << 5)
		}
	}
	return n
}

func (a *question) over(conn net.Conn, tcp bool) (*dnsmessage.Message, error) {
	if tcp {
		if _, err := conn.Write(AppendFrame(nil, a.msg)); err != nil {
			return nil, err
		}
		b, err := readFrame(conn)
		if err != nil {
			return nil, err
		}
		m, err := a.check(b)
		if errors.Is(err, errLetters) { // TCP: the answer is the server's, it only ignores case
			err = nil
		}
		return m, err
	}
	if _, err := conn.Write(a.msg); err != nil {
		return nil, err
	}
	buf := make([]byte, 4096)
	for {
		n, err := conn.Read(buf)
		if err != nil {
			return nil, err
		}
		m, err := a.check(buf[:n])
		if err == nil || errors.Is(err, errLetters) {
			return m, err
		}
		// Not an answer to this question: forged or late. The true answer may still come.
	}
}

// check parses a message and accepts it if it answers the question. With errLetters it returns the
// message, too.
func (a *question) check(b []byte) (*dnsmessage.Message, error) {
	var p dnsmessage.Parser
	h, err := p.Start(b)
	if err != nil {
		return nil, err
	}
	if !h.Response || h.ID != a.id || h.OpCode != 0 {
		return nil, errors.New("not the answer")
	}
	qs, err := p.AllQuestions()
	if err != nil {
		return nil, err
	}
	if len(qs) != 1 || qs[0].Type != a.q.Type || qs[0].Class != a.q.Class ||
		!strings.EqualFold(qs[0].Name.String(), a.q.Name.String()) {
		return nil, errors.New("the answer is to another question")
	}
	m := &dnsmessage.Message{Header: h}
	if h.Truncated { // its records are not needed, and may be cut in the middle
		return m, a.letters(qs[0])
	}
	if m.Answers, err = p.AllAnswers(); err != nil {
		return nil, fmt.Errorf("the answer's records: %w", err)
	}
	if m.Authorities, err = p.AllAuthorities(); err != nil {
		return nil, fmt.Errorf("the answer's authority: %w", err)
	}
	return m, a.letters(qs[0])
}

func (a *question) letters(q dnsmessage.Question) error {
	if q.Name != a.q.Name {
		return errLetters
	}
	return nil
}
