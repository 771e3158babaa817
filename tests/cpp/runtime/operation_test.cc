#include "runtime/operation.h"

#include <atomic>
#include <thread>

#include "base/completion_queue.h"
#include "check.h"

using namespace hvdtune;

namespace {

std::vector<Operation> named(const std::vector<std::string>& names) {
  std::vector<Operation> operations;
  for (const std::string& name : names) {
    Request request;
    request.name = name;
    operations.emplace_back().request = std::make_shared<const Request>(std::move(request));
  }
  return operations;
}

void nothing(const std::function<bool()>& /*has_ended*/) {}

}  // namespace

TEST(a_group_is_added_as_a_whole_or_not_at_all) {
  OperationTable table;
  table.add(named({"a"}));
  CHECK_THROWS(ErrorCode::kDuplicateName, table.add(named({"b", "a"})));
  CHECK_THROWS(ErrorCode::kDuplicateName, table.add(named({"c", "d", "c"})));
  CHECK_EQ(table.take_new().size(), 1U);
  CHECK(table.find({kWorldSet, "b"}) == nullptr);
  table.add(named({"b", "c"}));
  CHECK_EQ(table.take_new().size(), 2U);
}

TEST(a_name_is_free_again_once_done) {
  OperationTable table;
  const Handle first = table.add(named({"a"}))[0];
  table.complete(std::vector{table.find({kWorldSet, "a"})});
  const Handle second = table.add(named({"a"}))[0];
  CHECK(table.poll(first));
  CHECK(!table.poll(second));
  CHECK_THROWS(ErrorCode::kUsage, table.release(second));
  CHECK(table.release(first)->request->name == "a");
}

TEST(a_failure_is_told_until_the_handle_is_released) {
  OperationTable table;
  const Handle handle = table.add(named({"a"}))[0];
  const Failure failure({kWorldSet, "a"}, Error(ErrorCode::kMismatch, "no", -1, "a"));
  table.fail({&failure, 1});
  CHECK_THROWS(ErrorCode::kMismatch, table.poll(handle));
  CHECK_THROWS(ErrorCode::kMismatch, table.wait(handle, std::chrono::seconds(1), nothing));
  table.release(handle);
  CHECK_THROWS(ErrorCode::kUsage, table.poll(handle));
}

TEST(closing_fails_what_is_pending_and_what_comes) {
  OperationTable table;
  const std::vector<Handle> handles = table.add(named({"a", "b"}));
  table.complete(std::vector{table.find({kWorldSet, "a"})});
  table.close(Error(ErrorCode::kRankLost, "rank 1 is gone", 1));
  table.close(Error(ErrorCode::kShutdown, "too late to be the reason"));
  CHECK(table.poll(handles[0]));
  CHECK_THROWS(ErrorCode::kRankLost, table.poll(handles[1]));
  CHECK_THROWS(ErrorCode::kRankLost, table.add(named({"c"})));
  CHECK(table.take_new().empty());
}

TEST(waiting_ends_with_the_time_and_counts_only_while_it_lasts) {
  OperationTable table;
  const Handle handle = table.add(named({"a"}))[0];
  int seen = 0;
  CHECK(!table.wait(handle, std::chrono::milliseconds(1),
                    [&](const auto& /*has_ended*/) { seen = table.waiting_threads(); }));
  CHECK_EQ(seen, 1);
  CHECK_EQ(table.waiting_threads(), 0);
}

TEST(a_process_is_blocked_only_while_as_many_wait_as_it_has_threads) {
  OperationTable table;
  const Handle handle = table.add(named({"a"}))[0];
  const auto is_blocked_in_wait = [&](int threads) {
    table.note_blocked_threads(threads);
    bool blocked = false;
    table.wait(handle, std::chrono::milliseconds(1),
               [&](const auto& /*has_ended*/) { blocked = table.is_blocked(); });
    CHECK(!table.is_blocked());
    return blocked;
  };
  CHECK(is_blocked_in_wait(1));
  CHECK(!is_blocked_in_wait(2));
  CHECK(!is_blocked_in_wait(0));
  table.note_blocked_threads(1);
  bool blocked = true;
  table.wait(handle, std::chrono::milliseconds(1), [&](const auto& /*has_ended*/) {
    table.complete(std::vector{table.find({kWorldSet, "a"})});
    blocked = table.is_blocked();
  });
  CHECK(!blocked);
}

TEST(no_completion_is_missed_by_a_waiting_thread) {
  OperationTable table;
  constexpr int kRounds = 3000;
  std::jthread completer([&] {
    for (int done = 0; done < kRounds;) {
      for (const auto& operation : table.take_new()) {
        table.complete(std::vector{operation});
        ++done;
      }
      std::this_thread::yield();
    }
  });
  for (int i = 0; i < kRounds; ++i) {
    const Handle handle = table.add(named({"t"}))[0];
    CHECK(table.wait(handle, std::chrono::seconds(60), nothing));
    table.release(handle);
  }
}

TEST(an_operation_with_an_on_end_is_told_once_and_leaves_nothing) {
  OperationTable table;
  std::vector<std::string> ended;
  const auto added = [&](const std::string& name) {
    std::vector<Operation> operations = named({name});
    operations[0].on_end = [&](const Operation& operation, const Error* error) {
      ended.push_back(operation.request->name + (error == nullptr ? "" : ": " + error->tensor()));
      if (error == nullptr) table.add(named({"next"}));  // no lock is held
    };
    return table.add(std::move(operations))[0];
  };
  const Handle done = added("a");
  table.complete(std::vector{table.find({kWorldSet, "a"})});
  CHECK_THROWS(ErrorCode::kUsage, table.poll(done));
  added("b");
  const Failure failure({kWorldSet, "b"}, Error(ErrorCode::kMismatch, "no", -1, "b"));
  table.fail({&failure, 1});
  added("c");
  table.close(Error(ErrorCode::kShutdown, "over"));
  CHECK(ended == std::vector<std::string>({"a", "b: b", "c: c"}));
}

TEST(what_is_told_counts_as_waited_for_until_it_ends) {
  OperationTable table;
  std::vector<Operation> operations = named({"a", "b", "c"});
  for (size_t i = 0; i < 2; ++i) operations[i].on_end = [](const Operation&, const Error*) {};
  table.add(std::move(operations));
  CHECK_EQ(table.waiting_threads(), 0);
  table.await_all();
  table.await_all();
  CHECK_EQ(table.waiting_threads(), 2);
  table.complete(std::vector{table.find({kWorldSet, "a"}), table.find({kWorldSet, "c"})});
  CHECK_EQ(table.waiting_threads(), 1);
  table.complete(std::vector{table.find({kWorldSet, "b"})});
  CHECK_EQ(table.waiting_threads(), 0);
}

TEST(what_comes_for_a_set_that_was_removed_is_refused) {
  const auto in_set = [](uint32_t set, const std::string& name) {
    Request request;
    request.name = name;
    request.process_set = set;
    std::vector<Operation> operations(1);
    operations[0].request = std::make_shared<const Request>(std::move(request));
    return operations;
  };
  OperationTable table;
  const Handle early = table.add(in_set(1, "early"))[0];
  table.remove_set(1, Error(ErrorCode::kUsage, "process set 1 was removed"));
  CHECK_THROWS(ErrorCode::kUsage, table.poll(early));
  // Its caller looked the set up before it was removed.
  CHECK_THROWS(ErrorCode::kUsage, table.add(in_set(1, "late")));
  CHECK(!table.has_new());
  table.add(in_set(2, "late"));
  CHECK_EQ(table.take_new().size(), 1U);
}

TEST(the_oldest_operation_of_each_set_is_known) {
  OperationTable table;
  const std::vector<std::pair<uint32_t, uint64_t>> rows = {{0, 30}, {0, 20}, {3, 50}, {0, 40}};
  std::vector<Operation> operations = named({"a", "b", "c", "d"});
  for (size_t i = 0; i < rows.size(); ++i) {
    Request request = *operations[i].request;
    request.process_set = rows[i].first;
    operations[i].request = std::make_shared<const Request>(std::move(request));
    operations[i].announced_ns = rows[i].second;
  }
  table.add(std::move(operations));
  CHECK(table.oldest_ns() == (std::map<uint32_t, uint64_t>{{0, 20}, {3, 50}}));
  table.complete(std::vector{table.find({0, "b"}), table.find({3, "c"})});
  CHECK(table.oldest_ns() == (std::map<uint32_t, uint64_t>{{0, 30}}));
}

TEST(what_nobody_waits_for_is_not_told_as_in_flight) {
  OperationTable table;
  std::vector<Operation> operations = named({"a", "b"});
  operations[0].announced_ns = 20;
  operations[0].patient = true;
  operations[1].announced_ns = 30;
  table.add(std::move(operations));
  CHECK(table.oldest_ns() == (std::map<uint32_t, uint64_t>{{0, 30}}));
  CHECK_EQ(table.pending().size(), 1U);
  table.complete(std::vector{table.find({0, "b"})});
  CHECK(table.oldest_ns().empty() && table.pending().empty());
}

TEST(a_watched_operation_tells_a_queue_once_whenever_it_ends) {
  OperationTable table;
  CompletionQueue queue;
  const std::vector<Handle> handles = table.add(named({"a", "b", "c"}));
  CHECK(table.watch(handles[0], [&] { queue.put(1); }));
  CHECK(queue.take(std::chrono::nanoseconds(0)).empty());
  table.complete(std::vector{table.find({kWorldSet, "a"}), table.find({kWorldSet, "b"})});
  CHECK(table.watch(handles[1], [&] { queue.put(2); }));
  CHECK(table.watch(handles[2], [&] { queue.put(3); }));
  table.close(Error(ErrorCode::kShutdown, "over"));
  CHECK(queue.take(std::chrono::seconds(1)) == std::vector<uint64_t>({1, 2, 3}));
  table.release(handles[0]);
  CHECK(!table.watch(handles[0], [&] { queue.put(4); }));
  CHECK(queue.take(std::chrono::nanoseconds(0)).empty());
}

TEST(what_is_awaited_counts_as_waited_for_until_it_ends) {
  OperationTable table;
  std::vector<Operation> operations = named({"a", "b"});
  operations[0].awaited = true;
  table.add(std::move(operations));
  CHECK_EQ(table.waiting_threads(), 1);
  table.note_blocked_threads(1);
  CHECK(!table.is_blocked());
  std::vector<Operation> again = named({"c", "a"});
  again[0].awaited = true;
  CHECK_THROWS(ErrorCode::kDuplicateName, table.add(std::move(again)));
  CHECK_EQ(table.waiting_threads(), 1);
  table.complete(std::vector{table.find({kWorldSet, "a"})});
  CHECK_EQ(table.waiting_threads(), 0);
}
