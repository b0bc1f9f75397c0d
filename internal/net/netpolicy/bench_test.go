package netpolicy

import (
	"fmt"
	"net/netip"
	"testing"
)

// largePolicy has 1000 rules: names, domains, and nested networks of both families.
func largePolicy(b *testing.B) *Policy {
	var s Spec
	for i := range 250 {
		s.Allow = append(s.Allow, fmt.Sprintf("host%d.example.com:443", i), fmt.Sprintf("*.zone%d.test:%d", i, 1000+i),
			fmt.Sprintf("9.%d.0.0/16:%d", i, 1000+i), fmt.Sprintf("2606:%x::/32", i))
	}
	p, err := Compile(s)
	if err != nil {
		b.Fatal(err)
	}
	return p
}

func BenchmarkJudge(b *testing.B) {
	p := largePolicy(b)
	facts := know("host77.example.com", "93.184.216.34", "a.b.c.zone9.test", "93.184.216.35")
	for what, addr := range map[string]string{
		"fact": "93.184.216.34:443", "domain": "93.184.216.35:1009", "network": "9.100.1.1:1100", "IPv6": "[2606:7f::1]:1",
		"name needed": "8.8.8.8:443", "denied": "8.8.8.8:22", "floor": "10.0.0.1:22",
	} {
		q := Query{Protocol: TCP, Addr: netip.MustParseAddrPort(addr), Facts: facts, Now: noon}
		b.Run(what, func(b *testing.B) {
			for b.Loop() {
				p.Judge(q)
			}
		})
	}
}

func BenchmarkJudgeDNS(b *testing.B) {
	p := largePolicy(b)
	for b.Loop() {
		p.JudgeDNS("a.b.c.zone9.test", 1)
	}
}
