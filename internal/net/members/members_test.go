package members

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/leaf/guestnet"
)

var (
	guest = guestnet.Guest4.Addr()
	web   = netip.MustParseAddr("192.0.0.65")
	db    = netip.MustParseAddr("192.0.0.66")
)

// segment returns a TCP segment with all its checksums.
func segment(src, dst netip.Addr, srcPort, dstPort uint16, seq, ack uint32, flags uint8, data string) []byte {
	b := packetOf(src, dst, TCP, tcpSize+len(data))
	copy(b, reset(src, dst, srcPort, dstPort, seq, ack, flags)[:HeaderSize+etherSize])
	copy(b[HeaderSize+etherSize+ipv4Size:], reset(src, dst, srcPort, dstPort, seq, ack, flags)[HeaderSize+etherSize+ipv4Size:])
	tcp := b[HeaderSize+etherSize+ipv4Size:]
	copy(tcp[tcpSize:], data)
	tcp[16], tcp[17] = 0, 0
	binary.BigEndian.PutUint16(tcp[16:], checksum(tcp, pseudoSum(src, dst, TCP, len(tcp))))
	return b
}

func datagram(src, dst netip.Addr, srcPort, dstPort uint16, data string) []byte {
	b := packetOf(src, dst, UDP, udpSize+len(data))
	udp := b[HeaderSize+etherSize+ipv4Size:]
	binary.BigEndian.PutUint16(udp, srcPort)
	binary.BigEndian.PutUint16(udp[2:], dstPort)
	binary.BigEndian.PutUint16(udp[4:], uint16(len(udp)))
	copy(udp[udpSize:], data)
	binary.BigEndian.PutUint16(udp[6:], checksum(udp, pseudoSum(src, dst, UDP, len(udp))))
	return b
}

func pseudoSum(src, dst netip.Addr, protocol uint8, n int) uint32 {
	s, d := src.As4(), dst.As4()
	return uint32(^checksum(append(s[:], d[:]...), uint32(protocol)+uint32(n)))
}

// wantSums checks the checksums of a message as a receiver does.
func wantSums(t *testing.T, b []byte) {
	t.Helper()
	ip := b[HeaderSize+etherSize:]
	if checksum(ip[:ipv4Size], 0) != 0 {
		t.Errorf("the IP header has another checksum: % x", ip[:ipv4Size])
	}
	l4, sum := ip[ipv4Size:], uint32(0)
	if ip[9] != ICMP {
		sum = pseudoSum(netip.AddrFrom4([4]byte(ip[12:])), netip.AddrFrom4([4]byte(ip[16:])), ip[9], len(l4))
	}
	if b[atFlags]&needsChecksum != 0 {
		at := map[byte]int{TCP: 16, UDP: 6}[ip[9]]
		if got, want := binary.BigEndian.Uint16(l4[at:]), fold(sum); got != want && got^want != 0xffff {
			t.Errorf("the sum of the pseudo header is %#x, want %#x", got, want)
		}
		return
	}
	if checksum(l4, sum) != 0 {
		t.Errorf("the transport has another checksum: % x", l4)
	}
}

func parsed(t *testing.T, b []byte) *Packet {
	t.Helper()
	p, err := Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	return &p
}

func TestAddressesAreTranslatedWithTheirChecksums(t *testing.T) {
	partial := segment(guest, db, 40000, 5432, 7, 0, flagSYN, "")
	partial[atFlags] = needsChecksum
	binary.LittleEndian.PutUint16(partial[atChecksumStart:], etherSize+ipv4Size)
	binary.LittleEndian.PutUint16(partial[atChecksumOffset:], 16)
	binary.BigEndian.PutUint16(partial[HeaderSize+etherSize+ipv4Size+16:], fold(pseudoSum(guest, db, TCP, tcpSize)))
	for name, b := range map[string][]byte{
		"segment":                   segment(guest, db, 40000, 5432, 7, 0, flagSYN, "data!"),
		"segment to be completed":   partial,
		"datagram":                  datagram(guest, db, 40000, 53, "question"),
		"datagram of an odd length": datagram(guest, db, 40000, 53, "odd"),
	} {
		t.Run(name, func(t *testing.T) {
			wantSums(t, b)
			p := parsed(t, b)
			p.Translate(web, guest)
			wantSums(t, p.Bytes())
			back := parsed(t, p.Bytes())
			if back.Src != web || back.Dst != guest || back.SrcPort != 40000 {
				t.Errorf("the receiver sees %s:%d to %s", back.Src, back.SrcPort, back.Dst)
			}
		})
	}
}

func TestADatagramWithoutChecksumStaysWithoutOne(t *testing.T) {
	b := datagram(guest, db, 1, 2, "x")
	udp := b[HeaderSize+etherSize+ipv4Size:]
	udp[6], udp[7] = 0, 0
	p := parsed(t, b)
	p.Translate(web, guest)
	if udp[6]|udp[7] != 0 {
		t.Errorf("it has the checksum % x", udp[6:8])
	}
}

func TestRefusalsAreWhatAKernelTakes(t *testing.T) {
	syn := parsed(t, segment(guest, db, 40000, 5432, 7, 0, flagSYN, ""))
	r := parsed(t, syn.Refusal(Prohibited))
	wantSums(t, r.Bytes())
	if r.Src != db || r.Dst != guest || r.DstPort != 40000 || r.flags != flagRST|flagACK || r.ack != 8 {
		t.Errorf("a SYN is answered %+v", r)
	}
	late := parsed(t, segment(guest, db, 40000, 5432, 7, 99, flagACK, "x"))
	if r = parsed(t, late.Refusal(Prohibited)); r.flags != flagRST || r.seq != 99 {
		t.Errorf("a segment is answered %+v", r)
	}
	wantSums(t, r.Bytes())
	if r := parsed(t, segment(guest, db, 1, 2, 7, 0, flagRST, "")).Refusal(Prohibited); r != nil {
		t.Error("a reset is answered")
	}
	u := parsed(t, datagram(guest, db, 40000, 53, "question"))
	e := parsed(t, u.Refusal(HostUnreachable))
	wantSums(t, e.Bytes())
	if e.Protocol != ICMP || e.icmpType != unreachable || e.icmpCode != uint8(HostUnreachable) || e.Src != db {
		t.Errorf("a datagram is answered %+v", e)
	}
}

// A port without a server: the error of db's kernel about web's datagram, in the eyes of web.
func TestAnErrorQuotesThePacketThatTheReceiverSent(t *testing.T) {
	asSeenByDB := parsed(t, datagram(web, guest, 40000, 53, "question"))
	e := asSeenByDB.Refusal(3)
	copy(e[HeaderSize+etherSize:], packetOf(guest, web, ICMP, len(e)-HeaderSize-etherSize-ipv4Size)[HeaderSize+etherSize:][:ipv4Size])
	p := parsed(t, e)
	q, ok := p.Quoted()
	if !ok || q.Src != web || q.SrcPort != 40000 || q.DstPort != 53 {
		t.Fatalf("it quotes %+v, %t", q, ok)
	}
	p.TranslateQuoted(db, guest)
	wantSums(t, p.Bytes())
	if q, ok := p.Quoted(); !ok || q.Src != guest || q.Dst != db {
		t.Errorf("web sees the quotation %+v", q)
	}
}

func TestOddFramesAreDropped(t *testing.T) {
	good := func() []byte { return segment(guest, db, 1, 2, 3, 4, flagACK, "data") }
	at := HeaderSize + etherSize
	gso := func(size uint16) func([]byte) {
		return func(b []byte) {
			b[atFlags], b[atGSOType] = needsChecksum, gsoTCPv4
			binary.LittleEndian.PutUint16(b[atChecksumStart:], etherSize+ipv4Size)
			binary.LittleEndian.PutUint16(b[atChecksumOffset:], 16)
			binary.LittleEndian.PutUint16(b[atGSOSize:], size)
		}
	}
	for name, change := range map[string]func([]byte){
		"a fragment":                     func(b []byte) { b[at+6] = 0x20 },
		"a later fragment":               func(b []byte) { b[at+7] = 1 },
		"IPv6":                           func(b []byte) { b[HeaderSize+12], b[HeaderSize+13] = 0x86, 0xdd },
		"a longer packet than its frame": func(b []byte) { b[at+2] = 1 },
		"a short IP header":              func(b []byte) { b[at] = 0x44 },
		"a TCP header beyond the packet": func(b []byte) { b[at+ipv4Size+12] = 0xf0 },
		"another protocol":               func(b []byte) { b[at+9] = 47 },
		"a checksum elsewhere":           func(b []byte) { b[atFlags] = needsChecksum },
		"segments of one byte":           gso(1),
		"segments over the MTU":          gso(1500),
		"segmentation of IPv6":           func(b []byte) { gso(1000)(b); b[atGSOType] = 4 },
	} {
		b := good()
		change(b)
		if p, err := Parse(b); err == nil {
			t.Errorf("%s is taken as %+v", name, p)
		}
	}
	b := good()
	gso(1000)(b)
	b[atBuffers], b[atGSOType] = 200, gsoTCPv4|gsoECN
	binary.LittleEndian.PutUint16(b[atHeaderLen:], 60000)
	p := parsed(t, b)
	if h := p.Bytes(); binary.LittleEndian.Uint16(h[atHeaderLen:]) != 54 || h[atBuffers] != 0 || h[atGSOType] != gsoTCPv4 {
		t.Errorf("the receiver gets the header % x", h[:HeaderSize])
	}
}

func TestTheTableFollowsAConnection(t *testing.T) {
	table, now := NewTable(), time.Unix(0, 0)
	syn := parsed(t, segment(guest, db, 40000, 5432, 7, 0, flagSYN, ""))
	f := table.Add(syn, web, db, "", now)
	table.Seen(f, syn, true, now)
	if b := f.Reset(true, guest); b == nil || parsed(t, b).ack != 8 {
		t.Error("an unanswered SYN cannot be reset")
	}
	answer := parsed(t, segment(guest, web, 5432, 40000, 100, 8, flagSYN|flagACK, ""))
	got, forward := table.Find(answer, db, web)
	if got != f || forward {
		t.Fatal("the answer is of another flow")
	}
	table.Seen(f, answer, false, now)
	table.Seen(f, parsed(t, segment(guest, db, 40000, 5432, 8, 101, flagACK, "")), true, now)
	if b := parsed(t, f.Reset(true, guest)); b.seq != 101 || b.Src != db || b.DstPort != 40000 {
		t.Errorf("the opener is reset by %+v", b)
	}
	if b := parsed(t, f.Reset(false, guest)); b.seq != 8 || b.Src != web || b.DstPort != 5432 {
		t.Errorf("the server is reset by %+v", b)
	}
	if n := len(table.Idle(now.Add(24*time.Hour), netip.Addr{})); n != 0 {
		t.Error("an idle connection ends")
	}
	if n := len(table.Idle(now.Add(evictable), web)); n != 1 {
		t.Error("an idle connection is not evictable")
	}
	if table.Opened(web) != 1 || !table.Remove(f) || table.Remove(f) || table.Opened(web) != 0 {
		t.Error("the flow is counted otherwise")
	}
}

func FuzzParse(f *testing.F) {
	f.Add(segment(guest, db, 1, 2, 3, 4, flagACK, "data"))
	f.Add(datagram(guest, db, 1, 2, "x"))
	u, _ := Parse(datagram(guest, db, 1, 2, "x"))
	f.Add(u.Refusal(Prohibited))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := Parse(bytes.Clone(b))
		if err != nil {
			return
		}
		if _, ok := p.Quoted(); ok {
			p.TranslateQuoted(web, guest)
		} else {
			p.Refusal(Prohibited)
			table := NewTable()
			fl := table.Add(&p, web, db, "", time.Unix(0, 0))
			table.Seen(fl, &p, true, time.Unix(0, 0))
			fl.Reset(true, guest)
			p.Translate(web, guest)
		}
		q, err := Parse(bytes.Clone(p.Bytes()))
		if err != nil || q.Src != web || q.Dst != guest || !bytes.Equal(q.Bytes(), p.Bytes()) {
			t.Fatalf("translated, it is parsed as %+v, %v", q, err)
		}
	})
}
