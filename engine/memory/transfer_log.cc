#include "engine/memory/transfer_log.h"

#include <utility>

namespace nn {

TransferLog& transfer_log() {
    static auto* const instance = new TransferLog;  // transfers may outlive anything else
    return *instance;
}

void TransferLog::begin(size_t limit) {
    const std::lock_guard lock(mutex_);
    records_.clear();
    limit_ = limit;
    cut_ = 0;
    on_ = true;
}

std::vector<TransferRecord> TransferLog::end(double* cut) {
    const std::lock_guard lock(mutex_);
    on_ = false;
    *cut = cut_;
    return std::exchange(records_, {});
}

void TransferLog::add(const TransferRecord& record) {
    const std::lock_guard lock(mutex_);
    if (!on_) return;
    if (records_.size() < limit_)
        records_.push_back(record);
    else if (cut_ == 0)
        cut_ = record.queued;
}

}  // namespace nn
