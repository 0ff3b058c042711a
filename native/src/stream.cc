#include "stream.h"

#include <pthread.h>

#include "signals.h"
#include "thread_pool.h"

namespace braze {

Event::Event() : fork_generation_(fork_generation()) {}

void Event::check_alive() const {
  if (fork_generation_ != fork_generation()) {
    fail(BRAZE_ERROR_EXECUTION, "this event was made before the process forked; ",
         "create a new event in the child");
  }
}

uint64_t Event::announce() {
  check_alive();
  const std::lock_guard<std::mutex> lock(mutex_);
  return ++announced_;
}

void Event::complete(uint64_t number) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (number < completed_) return;
  completed_ = number;
  time_ = Clock::now();
  changed_.notify_all();
}

uint64_t Event::latest() {
  check_alive();
  const std::lock_guard<std::mutex> lock(mutex_);
  return announced_;
}

void Event::wait(uint64_t number) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return completed_ >= number; });
}

bool Event::done() {
  check_alive();
  const std::lock_guard<std::mutex> lock(mutex_);
  return completed_ == announced_;
}

Event::Clock::time_point Event::time() {
  check_alive();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (announced_ == 0 || completed_ != announced_) {
    fail(BRAZE_ERROR_EXECUTION,
         "the event is not recorded and complete; record it and synchronize");
  }
  return time_;
}

Stream::Stream() : fork_generation_(fork_generation()), state_(std::make_shared<State>()) {
  const SignalsBlocked blocked;
  thread_ = new std::thread([state = state_] { serve(*state); });
  pthread_setname_np(thread_->native_handle(), "braze-stream");
}

Stream::~Stream() {
  if (fork_generation_ != fork_generation()) {
    new std::shared_ptr<State>(std::move(state_));  // its mutex may be locked for ever
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->closing = true;
    state_->work.notify_all();
  }
  if (thread_->get_id() == std::this_thread::get_id()) {
    thread_->detach();
  } else {
    thread_->join();
  }
  delete thread_;
}

void Stream::check_alive() const {
  if (fork_generation_ != fork_generation()) {
    fail(BRAZE_ERROR_EXECUTION, "this stream was made before the process forked; ",
         "create a new stream in the child");
  }
}

void Stream::enqueue(std::function<void()> task) {
  check_alive();
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->tasks.push_back(std::move(task));
  ++state_->enqueued;
  state_->work.notify_one();
}

void Stream::synchronize() {
  check_alive();
  if (thread_->get_id() == std::this_thread::get_id()) {
    fail(BRAZE_ERROR_EXECUTION, "work on a stream cannot wait for that stream; ",
         "synchronize from another thread");
  }
  std::unique_lock<std::mutex> lock(state_->mutex);
  const int64_t target = state_->enqueued;
  state_->progress.wait(lock, [&] { return state_->finished >= target; });
  if (state_->first_error) {
    const Error error = *state_->first_error;
    state_->first_error.reset();
    throw error;
  }
}

bool Stream::done() {
  check_alive();
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->finished == state_->enqueued;
}

void Stream::progress(int64_t& enqueued, int64_t& finished) {
  check_alive();
  const std::lock_guard<std::mutex> lock(state_->mutex);
  enqueued = state_->enqueued;
  finished = state_->finished;
}

void Stream::serve(State& state) {
  std::unique_lock<std::mutex> lock(state.mutex);
  for (;;) {
    state.work.wait(lock, [&] { return state.closing || !state.tasks.empty(); });
    if (state.tasks.empty()) return;
    std::function<void()> task = std::move(state.tasks.front());
    state.tasks.pop_front();
    lock.unlock();
    std::optional<Error> error;
    try {
      task();
    } catch (const Error& e) {
      error = e;
    } catch (const std::exception& e) {
      error = Error(BRAZE_ERROR_EXECUTION, e.what());
    } catch (...) {
      error = Error(BRAZE_ERROR_EXECUTION, kUnknownException);
    }
    task = nullptr;  // lets go of contexts and events before the task counts as finished
    lock.lock();
    if (error && !state.first_error) state.first_error = error;
    ++state.finished;
    state.progress.notify_all();
  }
}

}  // namespace braze
