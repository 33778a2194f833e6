package group_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/broker/group"
	"github.com/epochmq/epochmq/broker/topic"
	"github.com/epochmq/epochmq/internal/fastjson"
)

// memory is a file in memory.
type memory struct {
	data []byte
	fail error
}

func (m *memory) Load(parse func([]byte) error) (bool, error) {
	if m.data == nil {
		return false, nil
	}
	return true, parse(m.data)
}

func (m *memory) Save(data []byte) error {
	if m.fail == nil {
		m.data = append([]byte(nil), data...)
	}
	return m.fail
}

func openConfigs(t testing.TB, f topic.File, auto bool) *group.Configs {
	t.Helper()
	g, err := group.OpenConfigs(group.Options{File: f, AutoCreate: func() bool { return auto }})
	require.NoError(t, err)
	return g
}

func TestConfigFileForm(t *testing.T) {
	for _, name := range []string{"mixed-clean", "rolled-clean"} {
		golden, err := os.ReadFile(filepath.Join("testdata", "java-"+name+"-subscriptionGroup.json"))
		require.NoError(t, err)
		f := &memory{data: golden}
		g := openConfigs(t, f, true)
		require.NoError(t, g.Update(g.Lookup("SELF_TEST_C_GROUP")))
		got, want := strings.SplitAfterN(string(f.data), "},", 2), strings.SplitAfterN(string(golden), "},", 2)
		require.Equal(t, want[1], got[1], "all behind the version is byte-identical")
	}
}

func TestOlderConfigFile(t *testing.T) {
	golden, err := os.ReadFile(filepath.Join("testdata", "java-v4.9.4-clean-subscriptionGroup.json"))
	require.NoError(t, err)
	g := openConfigs(t, &memory{data: golden}, true)
	require.Equal(t, int32(15), g.Lookup("TOOLS_CONSUMER").ConsumeTimeoutMinute)
}

func TestUnknownFieldsAndForbiddenSurvive(t *testing.T) {
	f := &memory{data: []byte(`{"forbiddenTable":{"g":{"T":2}},"subscriptionGroupTable":{"g":{"groupName":"g","newer":{"b":1,"a":[]},"retryMaxTimes":3,
		"groupRetryPolicy":{"type":"EXPONENTIAL","exponentialRetryPolicy":{"initial":5000,"max":7200000,"multiplier":2}},"subscriptionDataSet":[{"topic":"T"}]}}}`)}
	g := openConfigs(t, f, true)
	require.True(t, g.Forbidden("g", "T", group.ForbiddenRead))
	require.NoError(t, g.Update(group.NewConfig("h")))
	for _, part := range []string{`"newer":{`, `"b":1`, `"EXPONENTIAL"`, `"retryMaxTimes":3`, `"subscriptionDataSet"`, `"T":2`} {
		require.Contains(t, string(f.data), part)
	}
	require.NoError(t, g.SetForbidden("g", "T", group.ForbiddenRead, false))
	require.False(t, g.Forbidden("g", "T", group.ForbiddenRead))
	require.Empty(t, g.ForbiddenTable())
	require.NoError(t, g.SetForbidden("g", "U", group.ForbiddenRead, true))
	existed, err := g.Delete("g")
	require.NoError(t, err)
	require.True(t, existed)
	require.Empty(t, g.ForbiddenTable())
	require.NotContains(t, string(f.data), `"newer"`)
}

func TestGroupsCreatedByUse(t *testing.T) {
	g := openConfigs(t, &memory{}, true)
	c, err := g.FindOrCreate([]byte("new"))
	require.NoError(t, err)
	require.Equal(t, int32(16), c.RetryMaxTimes)
	again, err := g.FindOrCreate([]byte("new"))
	require.NoError(t, err)
	require.Same(t, c, again)
	for _, bad := range []string{"", "a/b", "..", strings.Repeat("x", 121), "x\x00y"} {
		c, err := g.FindOrCreate([]byte(bad))
		require.NoError(t, err)
		require.Nil(t, c, bad)
	}
	g = openConfigs(t, &memory{}, false)
	c, err = g.FindOrCreate([]byte("new"))
	require.NoError(t, err)
	require.Nil(t, c)
	c, err = g.FindOrCreate([]byte("CID_RMQ_SYS_X"))
	require.NoError(t, err)
	require.NotNil(t, c, "system groups always")
}

func TestGroupAttributesAreRefused(t *testing.T) {
	g := openConfigs(t, &memory{}, true)
	c := group.NewConfig("a")
	require.NoError(t, fastjson.Unmarshal([]byte(`{"groupName":"a","attributes":{"+x":"y"}}`), c))
	var bad *topic.AttributeError
	require.ErrorAs(t, g.Update(c), &bad)
	require.Equal(t, "unsupported key: x", bad.Remark)
	require.Nil(t, g.Lookup("a"))
}

func TestBrokenConfigFileStopsTheStart(t *testing.T) {
	for _, data := range []string{"{", `[]`, "\x00"} {
		_, err := group.OpenConfigs(group.Options{File: &memory{data: []byte(data)}, AutoCreate: func() bool { return true }})
		require.Error(t, err, data)
	}
}

func FuzzGroupsFile(f *testing.F) {
	for _, name := range []string{"mixed-clean", "rolled-clean", "v4.9.4-clean"} {
		data, err := os.ReadFile(filepath.Join("testdata", "java-"+name+"-subscriptionGroup.json"))
		require.NoError(f, err)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m := &memory{data: data}
		o := group.Options{File: m, AutoCreate: func() bool { return true }}
		g, err := group.OpenConfigs(o)
		if err != nil {
			return
		}
		require.NoError(t, g.Update(group.NewConfig("fuzzed")))
		_, err = group.OpenConfigs(o)
		require.NoError(t, err, "what was written is read")
	})
}
