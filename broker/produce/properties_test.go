package produce

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/message"
)

// text writes properties as name=value;name=value.
func text(s string) []byte {
	return []byte(strings.NewReplacer("=", "\x01", ";", "\x02").Replace(s))
}

func TestClean(t *testing.T) {
	for _, c := range []struct {
		name, in, out string
		check         func(*testing.T, *properties)
	}{
		{"nothing", "", "", func(t *testing.T, p *properties) { require.Equal(t, properties{}, *p) }},
		{"user properties stay in order", "b=2;a=1;", "b=2;a=1;", nil},
		{"4.9 has no last separator", "a=1;b=2", "a=1;b=2;", nil},
		{"the broker's own are replaced", "MSG_REGION=x;a=1;CLUSTER=y;TRACE_ON=false;POP_CK=z;", "a=1;", nil},
		{"what no parser reads", ";;a;=1;b=;c=3;", "c=3;", nil},
		{"a value may hold the first separator", "a=1=2;", "a=1=2;", nil},
		{"id", "UNIQ_KEY=one;UNIQ_KEY=two;", "UNIQ_KEY=one;UNIQ_KEY=two;", func(t *testing.T, p *properties) { require.Equal(t, "two", string(p.uniq)) }},
		{"delay is taken out", "DELAY=3;a=1;", "a=1;", func(t *testing.T, p *properties) { require.Equal(t, "3", string(p.delay)) }},
		{"no wait", "WAIT=false;", "WAIT=false;", func(t *testing.T, p *properties) { require.True(t, p.noWait) }},
		{"wait", "WAIT=TRUE;", "WAIT=TRUE;", func(t *testing.T, p *properties) { require.False(t, p.noWait) }},
		{"half", "TRAN_MSG=true;", "TRAN_MSG=true;", func(t *testing.T, p *properties) { require.True(t, p.prepared) }},
		{"timer", "TIMER_DELAY_SEC=5;", "TIMER_DELAY_SEC=5;", func(t *testing.T, p *properties) { require.True(t, p.timer) }},
		{"timed before", "TIMER_OUT_MS=5;", "TIMER_OUT_MS=5;", func(t *testing.T, p *properties) { require.True(t, p.timed) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			var p properties
			require.Equal(t, string(text(c.out)), string(p.clean(nil, text(c.in))))
			if c.check != nil {
				c.check(t, &p)
			}
		})
	}
}

func TestCleanAllocatesNothing(t *testing.T) {
	in := text("KEYS=k1 k2;UNIQ_KEY=0123456789ABCDEF;WAIT=true;TAGS=TagA;a=1;b=2;c=3;d=4;")
	buf := make([]byte, 0, 1024)
	var p properties
	require.Zero(t, testing.AllocsPerRun(100, func() { buf = p.clean(buf[:0], in) }))
}

// FuzzClean: what is kept decodes to what the text decoded to, without the names that the broker writes.
func FuzzClean(f *testing.F) {
	f.Add(text("a=1;DELAY=3;POP_CK=x;UNIQ_KEY=u;"))
	f.Add(text(";;=;a=;b"))
	f.Add([]byte("a\x01b\x01c\x02"))
	f.Fuzz(func(t *testing.T, in []byte) {
		var p properties
		out := p.clean(nil, in)
		want := message.DecodeProperties(in)
		for _, name := range []string{message.PropPopCK, message.PropCluster, message.PropMsgRegion, message.PropTraceSwitch, message.PropDelay} {
			delete(want, name)
		}
		require.Equal(t, want, message.DecodeProperties(out))
		if !bytes.Equal(out, p.clean(nil, out)) {
			t.Fatalf("cleaning %q twice changes it", in)
		}
	})
}
