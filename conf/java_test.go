package conf_test

import (
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/broker"
	"github.com/epochmq/epochmq/conf"
	"github.com/epochmq/epochmq/controller"
	"github.com/epochmq/epochmq/namesrv"
)

var quiet = slog.New(slog.DiscardHandler)

func brokerSet(t *testing.T) *conf.Set {
	t.Helper()
	set, err := broker.NewSettings(quiet)
	require.NoError(t, err)
	return set
}

func namesrvSet(t *testing.T) *conf.Set {
	t.Helper()
	set := conf.New(quiet)
	require.NoError(t, set.Register(new(namesrv.Config)))
	return set
}

// TestSamples loads every sample; a key that nothing knows is a mistake in it.
func TestSamples(t *testing.T) {
	n := 0
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if ext := filepath.Ext(path); err != nil || ext != ".conf" && ext != ".properties" {
			return err
		}
		n++
		if strings.HasPrefix(path, "controller/") {
			checkControllerSample(t, path)
			return nil
		}
		set := brokerSet(t)
		require.NoError(t, set.Load(path), path)
		require.Empty(t, set.Unknown(), path)
		require.True(t, set.Given("brokerName"), path)
		var c broker.Config
		set.Value(&c)
		require.NoError(t, c.Validate(), path)
		return nil
	}))
	require.GreaterOrEqual(t, n, 11)
}

func checkControllerSample(t *testing.T, path string) {
	t.Helper()
	set := conf.New(quiet)
	inNamesrv := strings.HasPrefix(filepath.Base(path), "namesrv")
	if inNamesrv {
		require.NoError(t, set.Register(new(namesrv.Config)))
	}
	require.NoError(t, set.Register(new(controller.Config)))
	require.NoError(t, set.Load(path), path)
	require.Empty(t, set.Unknown(), path)
	require.Equal(t, inNamesrv, set.Given("enableControllerInNamesrv"), path)
	var c controller.Config
	set.Value(&c)
	require.NoError(t, c.Validate(), path)
}

// javaListing reads what mqadmin prints for a server's settings.
func javaListing(t *testing.T, name string) map[string]string {
	t.Helper()
	b, err := os.ReadFile(name)
	require.NoError(t, err)
	m := map[string]string{}
	for line := range strings.Lines(string(b)) {
		if key, value, ok := strings.Cut(line, "="); ok && strings.TrimSpace(key) != "" && !strings.HasPrefix(line, "=") && !strings.HasPrefix(line, "$") {
			m[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	}
	require.NotEmpty(t, m)
	return m
}

// ofTheRun are keys that the captured servers' configuration set.
var ofTheRun = words(`brokerIP1 brokerIP2 brokerName brokerClusterName listenPort haListenPort namesrvAddr rocketmqHome storePathRootDir
	storePathCommitLog brokerConfigPath configStorePath kvConfigPath mappedFileSizeTimerLog maxMessageSize maxHashSlotNum maxIndexNum
	coldDataFlowControlEnable transactionTimeOut transactionCheckInterval transactionMetricFlushInterval traceTopicEnable timerWheelSlots
	diskMaxUsedSpaceRatio mappedFileSizeCommitLog mappedFileSizeConsumeQueue useServerSideResetOffset registerNameServerPeriod
	recallMessageEnable enablePropertyFilter`)

// ofTheMachine are keys whose value follows the number of processors.
var ofTheMachine = words(`processReplyMessageThreadPoolNums pullMessageThreadPoolNums litePullMessageThreadPoolNums queryMessageThreadPoolNums
	clientCallbackExecutorThreads heartbeatThreadPoolNums sendMessageThreadPoolNums endTransactionThreadPoolNums putMessageFutureThreadPoolNums`)

func words(s string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(s) {
		m[w] = true
	}
	return m
}

func compare(t *testing.T, set *conf.Set, java map[string]string, different map[string]string) {
	t.Helper()
	ours := map[string]conf.Key{}
	for _, k := range set.Keys() {
		ours[k.Name] = k
	}
	for key, want := range java {
		k, ok := ours[key]
		require.True(t, ok, "key %s of the Java server is not known", key)
		if ofTheRun[key] || ofTheMachine[key] {
			continue
		}
		if why, ok := different[key]; ok {
			require.NotEmpty(t, why)
			continue
		}
		if k.Value != want {
			t.Errorf("key %s is %q by default, in the Java server %q", key, k.Value, want)
		}
	}
	for key := range different {
		require.Contains(t, java, key, "listed as different, but the Java server has no such key")
	}
}

func TestNamesrvDefaultsAreJavas(t *testing.T) {
	compare(t, namesrvSet(t), javaListing(t, "testdata/java-getNamesrvConfig.txt"), nil)
}

func TestBrokerDefaultsAreJavas(t *testing.T) {
	compare(t, brokerSet(t), javaListing(t, "testdata/java-getBrokerConfig.txt"), map[string]string{
		"authConfigPath":                 "names a folder of a feature that is not part of this version",
		"authenticationMetadataProvider": "names a Java class",
		"authorizationMetadataProvider":  "names a Java class",
		"bitMapLengthConsumeQueueExt":    "the Java broker computes it from its bloom filter, which is not part of this version",
	})
}
